"""Encoder with LayerDrop whose rate ramps up, every layer under activation checkpointing.

Source: https://github.com/pytorch/pytorch/issues/144035 (the error); layer drop under recomputation as asked in
https://github.com/lucidrains/enformer-pytorch/issues/33
"""
import random

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "j", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT", "region_marker": "REGION", "step": 117,
    "plain": {"outcome": "raises", "exception": "CheckpointError", "match": "A different number of tensors was saved"},
    "set": "twelfth", "written": "2026-11-25",
}


class EncoderLayer(nn.Module):
    def __init__(self, dim, dropout=0.1):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Conv1d(dim, dim, 5, padding=2, groups=dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim))
        self.drop_rate = 0.0

    def forward(self, x):
        if self.training and self.drop_rate > 0:
            if random.random() < self.drop_rate:  # CULPRIT
                return x
        x = x + self.mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.ff(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, n_in=4, dim=24, depth=4, n_out=3):
        super().__init__()
        self.inp = nn.Linear(n_in, dim)
        self.layers = nn.ModuleList(EncoderLayer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, n_out)

    def set_layerdrop(self, rate):
        for i, layer in enumerate(self.layers, 1):
            layer.drop_rate = rate * i / len(self.layers)

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False)  # REGION
        return self.head(h.mean(1))


def dna_batch(n, length=24):
    seq = torch.randint(0, 4, (n, length))
    gc = ((seq == 1) | (seq == 2)).float().mean(1)
    return F.one_hot(seq, 4).float(), torch.bucketize(gc, torch.tensor([0.42, 0.58]))


def main(steps=260, ramp_start=100, ramp_steps=80, final_rate=0.2):
    random.seed(0)
    torch.manual_seed(0)
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        ramp = min(max((step - ramp_start) / ramp_steps, 0.0), 1.0)
        model.set_layerdrop(final_rate * ramp)
        x, y = dna_batch(16)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} layerdrop {final_rate * ramp:.3f}")


if __name__ == "__main__":
    main()
