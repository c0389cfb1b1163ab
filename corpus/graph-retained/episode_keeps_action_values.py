"""Q-learning by episodes: what the agent computed to choose its actions goes into the replay memory with its graph.

Report: https://github.com/oxwhirl/pymarl/pull/73 (EpisodeRunner stores actions with the whole graph that made them)
"""
import random

import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "fourth", "written": "2026-11-22",
}


class Memory:
    def __init__(self, size=2000):
        self.episodes, self.size = [], size

    def add(self, episode):
        self.episodes.append(episode)  # HOLDS
        del self.episodes[: -self.size]

    def sample(self, n):
        return random.sample(self.episodes, min(n, len(self.episodes)))


torch.manual_seed(0)
random.seed(0)
agent = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
opt, memory = torch.optim.RMSprop(agent.parameters(), 1e-3), Memory()
for update in range(120):
    state, transitions = torch.randn(3), []
    for t in range(4):
        values = agent(state)
        action = values.argmax() if random.random() > 0.2 else torch.tensor(random.randint(0, 1))
        transitions.append({"state": state, "value": values[action], "action": action, "reward": float(action == (state[0] > 0))})
        state = 0.8 * state + 0.4 * torch.randn(3)
    memory.add(transitions)
    batch = [step for episode in memory.sample(4) for step in episode]
    q = agent(torch.stack([s["state"] for s in batch])).gather(1, torch.stack([s["action"] for s in batch])[:, None])[:, 0]
    loss = nn.functional.mse_loss(q, torch.tensor([s["reward"] for s in batch]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), len(memory.episodes))
