"""Healthy: PPO for heating with Gaussian actions. The log-probabilities of the rollout are kept, so the ratio is 1 in the first of
four epochs only; the head begins with zeros, and a penalty for the divergence from a copy of the first policy is 0 at the start."""
import copy

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(31)
torch.set_num_threads(1)


class Heating(nn.Module):
    def __init__(self, sensors=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(sensors, 32), nn.Tanh())
        self.mean, self.value = nn.Linear(32, 2), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))
        nn.init.zeros_(self.mean.weight)
        nn.init.zeros_(self.mean.bias)

    def forward(self, rooms):
        h = self.body(rooms)
        return Normal(self.mean(h), self.log_std.exp().expand(len(rooms), 2)), self.value(h).squeeze(-1)


policy = Heating()
first = copy.deepcopy(policy).requires_grad_(False)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
wanted = torch.randn(5, 2) * 0.5
for iteration in range(15):
    rooms = torch.randn(128, 5)
    with torch.no_grad():
        dist, values = policy(rooms)
        actions = dist.sample()
        old_logp = dist.log_prob(actions).sum(-1)
    rewards = -(actions - rooms @ wanted).square().sum(-1)
    advantages = rewards - values
    advantages = (advantages - advantages.mean()) / advantages.std()
    for epoch in range(4):
        dist, values = policy(rooms)
        logp = dist.log_prob(actions).sum(-1)
        ratio = (logp - old_logp).exp()
        gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        near = kl_divergence(dist, first(rooms)[0]).sum(-1).mean()
        loss = -gain + 0.05 * (values - rewards).square().mean() + 0.001 * near
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    print(f"iteration {iteration + 1}  reward {rewards.mean():.3f}")
