"""Healthy: forbidden actions have logits of minus infinity, their probability is zero and the entropy skips them.

Report it resembles: https://github.com/Stable-Baselines-Team/stable-baselines3-contrib/issues/221
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "second", "written": "2026-11-22"}

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 6))
opt = torch.optim.Adam(policy.parameters(), 1e-3)
for step in range(60):
    obs = torch.randn(12, 5)
    allowed = torch.rand(12, 6) > 0.4
    allowed[:, 0] = True
    logp = policy(obs).masked_fill(~allowed, float("-inf")).log_softmax(1)
    action = torch.multinomial(logp.detach().exp(), 1)[:, 0]
    reward = (action == 2).float()
    finite = logp.masked_fill(~allowed, 0.0)
    entropy = -(finite.exp() * finite * allowed).sum(1).mean()
    loss = -(logp.gather(1, action[:, None])[:, 0] * (reward - reward.mean())).mean() - 0.01 * entropy
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item(), policy[0].weight.isfinite().all().item())
