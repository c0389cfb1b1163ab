"""Soft actor-critic with actions up to 2: the tanh correction is taken of the scaled action, once it passes 1 its log has no value.

Report: https://github.com/philtabor/Actor-Critic-Methods-Paper-To-Code/issues/7
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "actor",
    "set": "second", "written": "2026-11-22",
}


class Actor(nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.body, self.mean, self.log_std = nn.Linear(3, 16), nn.Linear(16, 1), nn.Linear(16, 1)
        self.limit = limit

    def forward(self, state):
        h = self.body(state).relu()
        normal = torch.distributions.Normal(self.mean(h), self.log_std(h).clamp(-6, -3).exp())
        raw = normal.rsample()
        action = torch.tanh(raw) * self.limit
        logp = normal.log_prob(raw)
        logp = logp - torch.log(1 - action.pow(2) + 1e-6)  # CULPRIT
        return action, logp.sum(1, keepdim=True)


torch.manual_seed(0)
actor, critic = Actor(2.0), nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
actor_opt = torch.optim.Adam(actor.parameters(), 2e-3)
critic_opt = torch.optim.Adam(critic.parameters(), 1e-2)
for step in range(120):
    state = torch.rand(32, 3)
    tried = torch.rand(32, 1) * 4 - 2
    value_loss = nn.functional.mse_loss(critic(torch.cat([state, tried], 1)), 3 * tried)
    critic_opt.zero_grad()
    value_loss.backward()
    critic_opt.step()
    action, logp = actor(state)
    actor_loss = (0.01 * logp - critic(torch.cat([state, action], 1))).mean()
    if actor_loss.isnan():
        print("reproduced at", step)
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
    if actor_loss.isnan():
        break
