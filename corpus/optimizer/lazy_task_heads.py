"""Continual learning: the head of a new task is put into a plain dict when its first batch arrives.

Report: https://github.com/pytorch/pytorch/issues/632
"""
import torch
from torch import nn

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "first", "written": "2026-11-22",
}


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
        self.shared = nn.Linear(12, 2)
        self.heads = {}

    def forward(self, x, task):
        if task == 0:
            return self.shared(self.trunk(x))
        if task not in self.heads:
            self.heads[task] = nn.Linear(12, 2)  # CUT
        return self.heads[task](self.trunk(x))


torch.manual_seed(0)
model = MultiHead()
for task in range(3):
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(20):
        x = torch.randn(16, 6)
        loss = nn.functional.cross_entropy(model(x, task), (x[:, task] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
print("reproduced", len(list(model.parameters())) == 4)
