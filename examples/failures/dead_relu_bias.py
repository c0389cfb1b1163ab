"""All ReLUs of the first layer are dead: bias initialised to -10 by a copy-paste of a focal-loss prior."""

import torch
from torch import nn

EXPECT = {"kind": "zero-grad", "line": ("cut", "CUT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.out = nn.Linear(8, 16), nn.Linear(16, 2)
        nn.init.constant_(self.features.bias, -10.0)

    def forward(self, x):
        return self.out(torch.relu(self.features(x)))  # CUT


def main():
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(6):
        loss = nn.functional.cross_entropy(net(torch.randn(16, 8)), torch.randint(0, 2, (16,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": not net.features.weight.grad.any().item()})


if __name__ == "__main__":
    main()
