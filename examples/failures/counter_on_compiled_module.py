"""A warm-up counts its calls in a Python number of a compiled module, which is compiled anew in each step."""

import torch
from torch import nn

EXPECT = {"kind": "recompiled-often", "line": ("cause", "COUNTED")}


class WarmedUp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.calls = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), 0

    def forward(self, x):
        self.calls = self.calls + 1  # COUNTED
        return self.body(x) * min(1.0, self.calls / 50)


def main():
    torch.manual_seed(0)
    net = WarmedUp()
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.Adam(net.parameters())
    for _ in range(6):
        x = torch.randn(8, 4)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": net.calls == 6})


if __name__ == "__main__":
    main()
