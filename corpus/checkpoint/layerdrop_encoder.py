"""Time series encoder with LayerDrop and activation checkpointing.

Story: the blocks are checkpointed to save memory; the drop rate of whole blocks is zero at the
start and is raised linearly after a warm up.  Some time after that the backward raises a
CheckpointError.
Based on public reports: huggingface/transformers#30113 (LayerDrop and gradient checkpointing),
openai/guided-diffusion#167 (random state of the recomputation) and pytorch/pytorch#141896 for
the error.
"""
import random
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "x", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT", "plain": {"outcome": "error", "error": "torch.utils.checkpoint: A different number of tensors was saved"},
    "set": "fourteenth", "written": "2026-11-26",
}


@dataclass
class Config:
    channels: int = 6
    length: int = 32
    width: int = 32
    depth: int = 4
    heads: int = 4
    max_drop: float = 0.2
    warmup: int = 150
    ramp: int = 200
    steps: int = 400
    batch: int = 32


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1 = nn.LayerNorm(cfg.width)
        self.attn = nn.MultiheadAttention(cfg.width, cfg.heads, batch_first=True)
        self.norm2 = nn.LayerNorm(cfg.width)
        self.mlp = nn.Sequential(nn.Linear(cfg.width, 2 * cfg.width), nn.GELU(), nn.Linear(2 * cfg.width, cfg.width))
        self.drop_rate = 0.0

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        if self.training and random.random() < self.drop_rate:  # CULPRIT
            return x
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(cfg.channels, cfg.width)
        self.position = nn.Parameter(0.02 * torch.randn(cfg.length, cfg.width))
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.depth))
        self.head = nn.Linear(cfg.width, 1)

    def set_drop_rate(self, rate):
        for block in self.blocks:
            block.drop_rate = rate

    def forward(self, x):
        h = self.embed(x) + self.position
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False)
        return self.head(h.mean(1)).squeeze(-1)


def drop_schedule(cfg, step):
    return cfg.max_drop * min(1.0, max(0.0, (step - cfg.warmup) / cfg.ramp))


def make_batch(cfg, generator):
    """Predict the lag correlation of two of the channels."""
    x = torch.randn(cfg.batch, cfg.length, cfg.channels, generator=generator)
    strength = torch.rand(cfg.batch, 1, generator=generator) * 2 - 1
    x[:, 2:, 1] = 0.4 * x[:, 2:, 1] + strength * x[:, :-2, 0]
    x[:, :, 2] += strength
    return x, strength.squeeze(1)


def main():
    random.seed(0)
    torch.manual_seed(0)
    cfg = Config()
    model = Encoder(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(1)
    for step in range(cfg.steps):
        model.set_drop_rate(drop_schedule(cfg, step))
        x, y = make_batch(cfg, g)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} drop {drop_schedule(cfg, step):.3f} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
