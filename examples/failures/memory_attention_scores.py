"""Which line keeps the memory: attention scores of a long sequence dominate."""

import torch
from torch import nn

EXPECT = {"kind": "saved-memory", "line": ("cause", "TOP"), "ask": "memory"}


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2)
        weights = scores.softmax(-1)  # TOP
        return weights @ v


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.embed, self.attn, self.out = nn.Linear(4, d), Attention(d), nn.Linear(d, 1)

    def forward(self, x):
        return self.out(self.attn(self.embed(x)))


torch.manual_seed(0)
net = Net()
net(torch.randn(2, 512, 4)).square().mean().backward()
