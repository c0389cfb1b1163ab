"""Healthy: SAC-like loop with three optimizers; the actor's loss fills gradients of the critic that are thrown away.

Report it resembles: https://github.com/mimoralea/gdrl/issues/13
"""
import copy

import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "first", "written": "2026-11-22"}

torch.manual_seed(0)
actor, critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4)), nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
target = copy.deepcopy(critic).requires_grad_(False)
log_alpha = nn.Parameter(torch.zeros(()))
opt_a, opt_c, opt_alpha = (torch.optim.Adam(p, 3e-4) for p in (actor.parameters(), critic.parameters(), [log_alpha]))


def sample(s):
    mean, log_std = actor(s).chunk(2, 1)
    dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    raw = dist.rsample()
    action = torch.tanh(raw)
    return action, (dist.log_prob(raw) - torch.log(1 - action.square() + 1e-6)).sum(1, keepdim=True)


for step in range(60):
    s, s2, a, r = torch.randn(16, 4), torch.randn(16, 4), torch.rand(16, 2) * 2 - 1, torch.randn(16, 1)
    with torch.no_grad():
        a2, logp2 = sample(s2)
        y = r + 0.99 * (target(torch.cat([s2, a2], 1)) - log_alpha.exp() * logp2)
    loss_c = (critic(torch.cat([s, a], 1)) - y).square().mean()
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    new, logp = sample(s)
    loss_a = (log_alpha.exp().detach() * logp - critic(torch.cat([s, new], 1))).mean()
    opt_a.zero_grad()
    loss_a.backward()
    opt_a.step()
    loss_alpha = -(log_alpha * (logp.detach() - 2)).mean()
    opt_alpha.zero_grad()
    loss_alpha.backward()
    opt_alpha.step()
    with torch.no_grad():
        for p, q in zip(target.parameters(), critic.parameters()):
            p.lerp_(q, 0.005)
