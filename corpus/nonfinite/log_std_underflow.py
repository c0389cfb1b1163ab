"""Gaussian policy with a free log_std: the optimizer drives it down until exp() underflows and the density divides by zero.

Report: https://github.com/leggedrobotics/rsl_rl/pull/190
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "late-blow-up", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Linear(3, 2)
        self.log_std = nn.Parameter(torch.zeros(2))

    def log_prob(self, s, a):
        var = (2 * self.log_std).exp()
        gap = (a - self.mu(s)).square()
        return (-gap / (2 * var) - self.log_std - 0.5 * math.log(2 * math.pi)).sum(1)  # CULPRIT


torch.manual_seed(0)
pi = Policy()
opt = torch.optim.Adam([{"params": pi.mu.parameters(), "lr": 1e-2}, {"params": [pi.log_std], "lr": 1.5}])
for step in range(90):
    s = torch.randn(32, 3)
    with torch.no_grad():
        a = pi.mu(s)  # a converged expert: the same action
    loss = -pi.log_prob(s, a).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", pi.log_std.isnan().any().item())
