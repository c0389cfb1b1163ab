"""Q-learning on a corridor: when prioritised replay is switched on, the errors are written back as priorities with the graph of the batch that they come from."""
import copy
import random

import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 520,
    "set": "late", "written": "2026-11-22",
}


class Replay:
    def __init__(self, capacity):
        self.capacity, self.rows, self.priority, self.position = capacity, [], [], 0

    def add(self, row):
        if len(self.rows) < self.capacity:
            self.rows.append(None)
            self.priority.append(1.0)
        self.rows[self.position], self.priority[self.position] = row, 1.0
        self.position = (self.position + 1) % self.capacity

    def sample(self, count, prioritised):
        weights = [float(p) + 0.01 for p in self.priority] if prioritised else None
        index = random.choices(range(len(self.rows)), weights, k=count)
        return index, [self.rows[i] for i in index]

    def update(self, index, errors):
        for i, error in zip(index, errors):
            self.priority[i] = error  # HOLDS


def encode(position):
    return torch.tensor([position / 5 - 1, float(position == 10)])


torch.manual_seed(0)
random.seed(0)
net = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 2))
target, opt = copy.deepcopy(net), torch.optim.Adam(net.parameters(), 1e-3)
replay, place = Replay(400), 5
for t in range(780):
    with torch.no_grad():
        action = random.randint(0, 1) if random.random() < 0.3 else net(encode(place)).argmax().item()
    after = min(10, max(0, place + 2 * action - 1))
    reward = float(after == 10)
    replay.add((encode(place), action, reward, encode(after)))
    place = random.randint(0, 9) if reward else after
    if t < 16:
        continue
    update = t - 16
    index, rows = replay.sample(16, prioritised=update >= 520)
    s, s2 = torch.stack([r[0] for r in rows]), torch.stack([r[3] for r in rows])
    a, r = torch.tensor([row[1] for row in rows]), torch.tensor([row[2] for row in rows])
    with torch.no_grad():
        wanted = r + 0.9 * (1 - r) * target(s2).max(1).values
    error = wanted - net(s).gather(1, a[:, None])[:, 0]
    opt.zero_grad()
    error.square().mean().backward()
    opt.step()
    if update >= 520:
        replay.update(index, error.abs())
    if update % 50 == 0:
        target.load_state_dict(net.state_dict())
        print(update, round(error.square().mean().item(), 5))
