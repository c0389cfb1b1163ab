"""Relative position bias is computed once from a learned table and cached on the module."""

import torch
from torch import nn

EXPECT = {"kind": "second-backward", "line": ("reused", "REUSED"), "module": "attn"}


class WindowAttention(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.qkv, self.table = nn.Linear(d, 3 * d), nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
        self.n, self._bias = n, None

    def bias(self):
        if self._bias is None:
            i = torch.arange(self.n).float()
            self._bias = self.table((i[:, None] - i[None]).unsqueeze(-1)).squeeze(-1)
        return self._bias

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) + self.bias()  # REUSED
        return scores.softmax(-1) @ v


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.fc = WindowAttention(6, 5), nn.Linear(6, 2)

    def forward(self, x):
        return self.fc(self.attn(x).mean(1))


def main():
    torch.manual_seed(0)
    model = Swin()
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(torch.randn(4, 5, 6)), torch.randint(0, 2, (4,)))
        opt.zero_grad()
        loss.backward()  # FREED
        opt.step()


if __name__ == "__main__":
    main()
