"""Transformer feed-forward block with dropout, checkpointed with preserve_rng_state=False "to save time"."""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "kind": "checkpoint-gradient-differs",
    "line": ("region", "REGION"),
    "ask": "checkpoints",
    "or": [("checkpoint-mismatch", "CULPRIT", "cause")],
}


class FeedForward(nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.norm, self.up, self.drop, self.down = (
            nn.LayerNorm(d),
            nn.Linear(d, 4 * d),
            nn.Dropout(p),
            nn.Linear(4 * d, d),
        )

    def forward(self, x):
        return x + self.down(self.drop(torch.nn.functional.gelu(self.up(self.norm(x)))))  # CULPRIT


class Stack(nn.Module):
    def __init__(self, d=16, depth=2, p=0.5, preserve=False):
        super().__init__()
        self.blocks = nn.ModuleList(FeedForward(d, p) for _ in range(depth))
        self.head = nn.Linear(d, 1)
        self.preserve = preserve

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=self.preserve)  # REGION
        return self.head(x)


def grads(preserve):
    torch.manual_seed(0)
    model = Stack(preserve=preserve)
    x = torch.randn(8, 16)
    model(x).square().mean().backward()
    return model.blocks[0].up.weight.grad


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--preserve", action="store_true")
    args = parser.parse_args()
    print(grads(args.preserve).norm())
    torch.manual_seed(0)
