"""Checkpointed layers with LayerDrop: whether a layer runs is drawn from Python's generator, which checkpointing does not put back, so the recomputation may decide differently.

Report: https://github.com/openai/guided-diffusion/issues/167 (random state not restored for recomputation), LayerDrop as in facebookresearch/fairseq2 pull 484
"""
import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "checkpoint", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.drop = 0.0

    def forward(self, x):
        h = self.norm(x)
        if self.training and random.random() < self.drop:  # CULPRIT
            return h
        return h + self.down(nn.functional.gelu(self.up(h)))


class Encoder(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.embed, self.out = nn.Linear(6, 12), nn.Linear(12, 4)
        self.layers = nn.ModuleList(Layer(12) for _ in range(depth))

    def set_layerdrop(self, p):
        for layer in self.layers:
            layer.drop = p

    def forward(self, x):
        h = self.embed(x)
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False)
        return self.out(h.mean(1))


random.seed(0)
torch.manual_seed(0)
model = Encoder()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(60):
    model.set_layerdrop(0.0 if step < 30 else 0.3)
    loss = nn.functional.cross_entropy(model(torch.randn(4, 7, 6)), torch.arange(4))
    opt.zero_grad()
    loss.backward()
    opt.step()
