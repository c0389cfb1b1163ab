"""DQN with a target network; after the uniform phase, replay is prioritised by the TD error.

Source: https://github.com/Kaixhin/Rainbow/pull/33 (same family: https://github.com/oxwhirl/pymarl/pull/73)
Plain PyTorch 2.13: silent; memory grows from the step at which priorities are used.
"""
import random

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "f", "kind": "graph-retained", "holder": "replay.priority", "holding_marker": "HOLDS", "step": 200,
    "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.value, self.advantage = nn.Linear(64, 1), nn.Linear(64, 3)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Replay:
    def __init__(self):
        self.rows, self.priority = [], {}

    def add(self, *row):
        self.priority[len(self.rows)] = torch.tensor(1.0)
        self.rows.append(row)

    def uniform(self, count):
        return random.sample(range(len(self.rows)), count)

    def prioritised(self, count):
        weights = [self.priority[i].item() + 1e-2 for i in range(len(self.rows))]
        return random.choices(range(len(self.rows)), weights, k=count)

    def gather(self, index):
        s, a, r, n = zip(*(self.rows[i] for i in index))
        return torch.stack(s), torch.tensor(a), torch.tensor(r), torch.stack(n)

    def rate(self, index, error):
        for i, e in zip(index, error.abs()):
            self.priority[i] = e  # HOLDS


def simulate(state, action):
    after = state + 0.1 * torch.tensor([-1.0, 0.0, 1.0])[action] * state.roll(1) + 0.05 * torch.randn(5)
    after = after.clamp(-2, 2)
    return after, float(1 - after.square().mean())


def main():
    torch.manual_seed(0)
    random.seed(0)
    online, target, replay = QNet(), QNet(), Replay()
    target.load_state_dict(online.state_dict())
    target.requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), lr=1e-3)
    state = torch.randn(5)
    for step in range(-64, 700):
        with torch.no_grad():
            greedy = online(state[None]).argmax().item()
        action = random.randrange(3) if random.random() < 0.2 else greedy
        after, reward = simulate(state, action)
        replay.add(state, action, reward, after)
        state = after if random.random() > 0.05 else torch.randn(5)
        if step < 0:
            continue
        index = replay.uniform(32) if step < 200 else replay.prioritised(32)
        s, a, r, n = replay.gather(index)
        with torch.no_grad():
            wanted = r + 0.9 * target(n).gather(1, online(n).argmax(1, keepdim=True)).squeeze(1)
        error = online(s).gather(1, a[:, None]).squeeze(1) - wanted
        loss = F.huber_loss(error, torch.zeros_like(error))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step >= 200:
            replay.rate(index, error)
        if step % 20 == 0:
            target.load_state_dict(online.state_dict())
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
