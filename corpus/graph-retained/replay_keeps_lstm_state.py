"""The recurrent state of the actor is stored with each transition as it came out of the network.

Report: https://github.com/Metta-AI/metta/pull/1139 (also oxwhirl/pymarl pull 73)
"""
import collections

import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "first", "written": "2026-11-22",
}


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.pi = nn.LSTMCell(4, 16), nn.Linear(16, 2)

    def forward(self, obs, state):
        h, c = self.cell(obs, state)
        return self.pi(h), (h, c)


class Experience:
    def __init__(self):
        self.rows = collections.deque(maxlen=500)

    def store(self, **row):
        self.rows.append(row)  # HOLDS


torch.manual_seed(0)
actor, memory = Actor(), Experience()
opt = torch.optim.Adam(actor.parameters(), 1e-3)
for episode in range(40):
    state = (torch.zeros(1, 16), torch.zeros(1, 16))
    losses = []
    for t in range(3):
        obs = torch.randn(1, 4)
        logits, state = actor(obs, state)
        dist = torch.distributions.Categorical(logits=logits)
        action = dist.sample()
        memory.store(obs=obs, action=action, state=state)
        losses.append(-dist.log_prob(action) * torch.randn(()))
    loss = torch.stack(losses).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", memory.rows[0]["state"][0].grad_fn is not None)
