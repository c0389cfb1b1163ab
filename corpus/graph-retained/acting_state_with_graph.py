"""Recurrent agent: random actions at first, then the policy acts step by step, and the state that it carries along keeps the graph of all steps before."""
import collections
import random

import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 137,
    "set": "late", "written": "2026-11-22",
}


class QNet(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.cell, self.out = nn.GRUCell(2, hidden), nn.Linear(hidden, 2)

    def forward(self, observation, state):
        state = self.cell(observation, state)
        return self.out(state), state


class Agent:
    def __init__(self, net):
        self.net, self.state, self.random = net, torch.zeros(1, 12), True

    def act(self, observation):
        if self.random:
            return random.randint(0, 1)
        q, self.state = self.net(observation[None], self.state)  # HOLDS
        return random.randint(0, 1) if random.random() < 0.1 else q.argmax().item()


def learn(net, opt, sequences):
    observations = torch.stack([torch.stack([o for o, _, _ in s]) for s in sequences])
    actions = torch.tensor([[a for _, a, _ in s] for s in sequences])
    rewards = torch.tensor([[r for _, _, r in s] for s in sequences])
    state, loss = torch.zeros(len(sequences), 12), 0.0
    for t in range(actions.shape[1]):
        q, state = net(observations[:, t], state)
        loss = loss + nn.functional.smooth_l1_loss(q.gather(1, actions[:, t : t + 1])[:, 0], rewards[:, t])
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


torch.manual_seed(0)
random.seed(0)
net = QNet()
agent, opt = Agent(net), torch.optim.Adam(net.parameters(), 2e-3)
memory, track = collections.deque(maxlen=2000), torch.zeros(2)
for update in range(380):
    agent.random = update < 137
    for _ in range(4):
        action = agent.act(track)
        memory.append((track, action, float(action == (track[0] > 0))))
        track = 0.9 * track + 0.3 * torch.randn(2)
    rows, starts = list(memory), [random.randint(0, max(0, len(memory) - 4)) for _ in range(8)]
    loss = learn(net, opt, [rows[s : s + 4] for s in starts])
    if update % 40 == 0:
        print(update, round(loss, 4))
