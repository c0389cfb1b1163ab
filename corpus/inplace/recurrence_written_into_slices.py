"""A hand-written recurrence fills a preallocated tensor step by step and reads the step before from it.

Report: https://github.com/facebookresearch/fairseq/issues/251
"""
import torch
from torch import nn

EXPECT = {"class": "inplace", "kind": "inplace", "mutating_marker": "MUTATES", "set": "first", "written": "2026-11-22"}


class Scan(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.rec, self.out = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        u = self.inp(x)
        h = torch.zeros_like(u)
        h[:, 0] = torch.tanh(u[:, 0])
        for t in range(1, x.shape[1]):
            h[:, t] = torch.tanh(u[:, t] + self.rec(h[:, t - 1]))  # MUTATES
        return self.out(h[:, -1])


torch.manual_seed(0)
scan = Scan()
opt = torch.optim.Adam(scan.parameters(), 1e-3)
for step in range(30):
    length = 1 if step < 12 else 5  # curriculum over the length
    x = torch.randn(8, length, 4)
    loss = (scan(x) - x.sum((1, 2))[:, None]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
