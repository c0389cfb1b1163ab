"""Autoencoder trained with MS-SSIM: a negative contrast term is raised to a fractional power.

Report: https://github.com/VainF/pytorch-msssim/issues/11
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "criterion",
    "set": "first", "written": "2026-11-22",
}


class MSSSIM(nn.Module):
    weights = (0.3, 0.7)

    def forward(self, a, b):
        value = 1.0
        for w in self.weights:
            ma, mb = a.mean((2, 3)), b.mean((2, 3))
            cov = (a * b).mean((2, 3)) - ma * mb
            va, vb = a.var((2, 3), correction=0), b.var((2, 3), correction=0)
            cs = (2 * cov + 1e-3) / (va + vb + 1e-3)
            value = value * cs.pow(w)  # CULPRIT
            a, b = F.avg_pool2d(a, 2), F.avg_pool2d(b, 2)
        return 1 - value.mean()


class Trainer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ELU(), nn.Conv2d(6, 1, 3, padding=1))
        self.criterion = MSSSIM()

    def forward(self, x, y):
        return self.criterion(x + 0.1 * self.net(x), y)


torch.manual_seed(0)
t = Trainer()
opt = torch.optim.Adam(t.parameters(), 1e-3)
for step in range(45):
    x = torch.rand(6, 1, 8, 8)
    y = 1 - x if step == 30 else x  # one batch of photographic negatives
    loss = t(x, y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print("reproduced", bool(loss.isnan()))
