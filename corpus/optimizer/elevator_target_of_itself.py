"""Q-learning of an elevator. The method that refreshes the target network loads the target's own weights into it, so it
keeps those of the beginning.
"""

import random

import torch
from torch import nn

EXPECT = {
    "class": "target network loaded from itself",
    "kind": "state-not-copied",
    "line": ["cause", "cause"],
    "what": "target.load_state_dict(target.state_dict()): the state has to be that of the online network.",
    "symptom": "no error; returns stay low, the target is the random initial network",
    "set": "ledger",
    "written": "2026-11-27",
}

random.seed(0)
torch.manual_seed(0)
FLOORS = 6


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2 * FLOORS, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, state):
        return self.layers(state)


def encoded(at, goal):
    state = torch.zeros(2 * FLOORS)
    state[at] = state[FLOORS + goal] = 1.0
    return state


class Elevator:
    def __init__(self):
        self.online, self.target = Values(), Values()
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=3e-3)
        self.memory = []

    def refresh(self):
        self.target.load_state_dict(self.target.state_dict())  # <-- cause

    def remember(self):
        at, goal, action = random.randrange(FLOORS), random.randrange(FLOORS), random.randrange(2)
        after = min(max(at + 2 * action - 1, 0), FLOORS - 1)
        done = float(after == goal)
        self.memory.append((encoded(at, goal), action, done, encoded(after, goal)))

    def learn(self):
        state, action, done, after = zip(*random.sample(self.memory, 32), strict=True)
        values = self.online(torch.stack(state)).gather(1, torch.tensor(action)[:, None])[:, 0]
        with torch.no_grad():
            best = self.target(torch.stack(after)).max(1).values
        done = torch.tensor(done)
        loss = nn.functional.mse_loss(values, done + 0.9 * best * (1 - done))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


agent = Elevator()
for step in range(240):
    for _ in range(4):
        agent.remember()
    if step >= 10:
        loss = agent.learn()
        if step % 20 == 0:
            agent.refresh()
            print(f"step {step}: loss {loss:.4f}")
