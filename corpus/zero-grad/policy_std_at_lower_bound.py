"""Gaussian policy with a free log_std that is clamped from below: once the parameter has passed the bound its gradient is exactly zero and it never comes back.

Report: https://github.com/DLR-RM/stable-baselines3/issues/620 (also watchernyu/REDQ issue 8)
"""
import torch
from torch import nn

EXPECT = {
    "class": "dies-late", "kind": "zero-grad", "cut_marker": "CUT", "parameters": ["log_std"],
    "set": "third", "written": "2026-11-22",
}

LOG_STD_MIN, LOG_STD_MAX = -1.5, 2.0


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(obs_dim, 32), nn.Tanh(), nn.Linear(32, act_dim))
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def forward(self, obs):
        log_std = self.log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)  # CUT
        return torch.distributions.Normal(self.mean(obs), log_std.exp())


torch.manual_seed(0)
actor = Actor(4, 2)
opt = torch.optim.Adam([{"params": actor.mean.parameters(), "lr": 1e-2}, {"params": [actor.log_std], "lr": 3e-2}])
for step in range(160):
    obs = torch.randn(64, 4)
    dist = actor(obs)
    action = dist.rsample()
    cost = (action - 0.5 * obs[:, :2]).square().sum(1)
    loss = cost.mean() - 1e-3 * dist.entropy().sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(step, loss.item(), actor.log_std.tolist())
print("reproduced", actor.log_std.grad.tolist())
