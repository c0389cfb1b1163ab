"""A curriculum flag is read from a global config inside a checkpointed block and advanced before backward()."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": "checkpoint-mismatch", "line": ("cause", "CULPRIT")}
CONFIG = {"step": 0}


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x):
        h = self.fc(x)
        if CONFIG["step"] % 2 == 0:  # CULPRIT
            return torch.sigmoid(h)  # CULPRIT
        return torch.tanh(h)  # CULPRIT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.block, self.out = nn.Linear(4, 8), Block(8), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(checkpoint(self.block, self.inp(x), use_reentrant=False))  # REGION


def main():
    torch.manual_seed(0)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(16, 4)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        CONFIG["step"] += 1
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
