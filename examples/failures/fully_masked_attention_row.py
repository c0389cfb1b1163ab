"""Encoder-decoder attention: an empty sentence in the batch gives a row of -inf, softmax of it is NaN."""

import math

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT"), "module": "cross"}


def collate(lengths, d):
    x = torch.randn(len(lengths), max(lengths), d)
    mask = torch.arange(max(lengths))[None] >= torch.tensor(lengths)[:, None]
    return x, mask


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3))

    def forward(self, x, memory, mask):
        scores = self.q(x) @ self.k(memory).transpose(-2, -1) / math.sqrt(x.shape[-1])
        scores = scores.masked_fill(mask[:, None], -math.inf)
        return scores.softmax(dim=-1) @ self.v(memory)  # CULPRIT


class Seq2Seq(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.cross, self.out = Attention(d), nn.Linear(d, 3)

    def forward(self, x, memory, mask):
        return self.out(x + self.cross(x, memory, mask))


def main():
    torch.manual_seed(0)
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters())
    for lengths in ([4, 2, 3], [5, 0, 1], [2, 2, 2]):
        memory, mask = collate(lengths, 8)
        logits = model(torch.randn(3, 4, 8), memory, mask)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(0, 3, (12,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(lengths, loss.item())


if __name__ == "__main__":
    main()
