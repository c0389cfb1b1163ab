"""Twelve tanh layers initialised with std=0.01 (the old ImageNet recipe)."""

import torch
from torch import nn

EXPECT = {"kind": "vanishing-gradient", "line": ("cause", "CULPRIT")}


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)
        nn.init.normal_(self.fc.weight, std=0.01)

    def forward(self, x):
        return torch.tanh(self.fc(x))  # CULPRIT


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 32), *[Block(32) for _ in range(12)], nn.Linear(32, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        loss = nn.functional.cross_entropy(net(torch.randn(16, 10)), torch.randint(0, 3, (16,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(net[0].weight.grad.norm().item(), net[-1].weight.grad.norm().item())


if __name__ == "__main__":
    main()
