"""Recurrent policy: where an episode has ended, the hidden state is set to zero in place, backward through the rollout finds it changed.

Report: https://github.com/leggedrobotics/rsl_rl/pull/35 (the reset that writes into the hidden states)
"""
import torch
from torch import nn

EXPECT = {"class": "inplace", "kind": "inplace", "mutating_marker": "MUTATES", "set": "second", "written": "2026-11-22"}


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.actor, self.critic = nn.GRUCell(5, 12), nn.Linear(12, 3), nn.Linear(12, 1)
        self.hidden = torch.zeros(4, 12)

    def reset(self, dones):
        if dones.any():
            self.hidden[dones] = 0.0  # MUTATES

    def forward(self, obs):
        self.hidden = self.cell(obs, self.hidden)
        return torch.distributions.Categorical(logits=self.actor(self.hidden)), self.critic(self.hidden)[:, 0]


torch.manual_seed(0)
policy = Memory()
opt = torch.optim.Adam(policy.parameters(), 1e-3)
clock = torch.tensor([0, -3, -6, -9])
for update in range(12):
    loss = 0.0
    for t in range(5):
        dist, value = policy(torch.randn(4, 5))
        action = dist.sample()
        reward = (action == 1).float()
        loss = loss + (value - reward).square().mean() - (dist.log_prob(action) * (reward - value.detach())).mean()
        clock = clock + 1
        dones = clock >= 27
        clock[dones] = 0
        policy.reset(dones)
    opt.zero_grad()
    loss.backward()
    opt.step()
    policy.hidden = policy.hidden.detach()
