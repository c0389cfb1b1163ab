"""fp16 features: squares over 256 exceed 65504 in the RMS norm, Inf; then x * rsqrt(inf) = 0, the loss is finite for a while."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT"), "module": "ff"}


class FF(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.wi, self.wo = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        h = torch.relu(self.wi(x))
        h = h * h  # CULPRIT
        return self.wo(h)


class Model(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.ff, self.out = FF(d), nn.Linear(d, 2)

    def forward(self, x):
        return self.out(x + self.ff(x))


def main():
    torch.manual_seed(0)
    model = Model().half()
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    for scale in (1, 1, 600):
        x = (torch.randn(6, 16) * scale).half()
        loss = nn.functional.cross_entropy(model(x).float(), torch.zeros(6, dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": not loss.isfinite().item(), "loss": loss.item()})


if __name__ == "__main__":
    main()
