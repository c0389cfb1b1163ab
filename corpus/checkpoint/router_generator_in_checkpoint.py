"""Mixture of experts under checkpointing: the router draws from its own generator, the recomputation drops other tokens.

Report: https://github.com/pytorch/torchtitan/issues/1117 (99 tokens saved, 98 recomputed)
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "checkpoint", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.generator = torch.Generator().manual_seed(3)
        self.jitter = 0.0

    def forward(self, x):
        noise = torch.rand(len(x), generator=self.generator)  # CULPRIT
        keep = x[:, 0] + self.jitter * noise > 0.2
        out = x.clone()
        out[keep] = torch.relu(self.a(x[keep]))
        out[~keep] = torch.tanh(self.b(x[~keep]))
        return out


torch.manual_seed(0)
layers = nn.ModuleList([Experts(), Experts()])
head = nn.Linear(8, 3)
opt = torch.optim.SGD([*layers.parameters(), *head.parameters()], 1e-2)
for step in range(30):
    for layer in layers:
        layer.jitter = 0.0 if step < 20 else 1.0
    h = torch.randn(64, 8)
    for layer in layers:
        h = checkpoint(layer, h, use_reentrant=False)
    loss = nn.functional.cross_entropy(head(h), torch.randint(0, 3, (64,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
