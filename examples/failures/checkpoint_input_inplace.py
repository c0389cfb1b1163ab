"""Residual sum is done in place on the input of a checkpointed block: the recomputation starts from another input."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES")}


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(c, c, 3, padding=1), nn.Conv1d(c, c, 3, padding=1)

    def forward(self, x):
        return self.conv2(torch.sigmoid(self.conv1(x)))


class Net(nn.Module):
    def __init__(self, inplace=True):
        super().__init__()
        self.inplace = inplace
        self.stem = nn.Conv1d(2, 4, 3, padding=1)
        self.block, self.head = Block(4), nn.Linear(4, 1)

    def forward(self, wave):
        x = self.stem(wave)
        y = checkpoint(self.block, x, use_reentrant=False)  # REGION
        if self.inplace:
            x += y  # MUTATES
        else:
            x = x + y
        return self.head(x.mean(2))


def run(inplace):
    torch.manual_seed(0)
    model = Net(inplace)
    model(torch.randn(3, 2, 20)).square().mean().backward()
    return model.block.conv1.weight.grad.clone()


if __name__ == "__main__":
    run(True)
