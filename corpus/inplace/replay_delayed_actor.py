"""Deterministic policy gradient from a replay buffer: once the actor learns too, its loss is computed before the critic's step and sent back after it."""
import random
from collections import deque

import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 633,
    "set": "late", "written": "2026-11-22",
}


class Pendulum:
    def reset(self):
        self.state = 0.5 * torch.randn(2)
        return self.state

    def step(self, action):
        angle, speed = self.state.tolist()
        speed += 0.1 * (angle + action)
        self.state = torch.tensor([angle + 0.1 * speed, speed])
        return self.state, -(angle**2 + 0.1 * speed**2 + 0.01 * action**2), abs(angle) > 2


torch.manual_seed(0)
random.seed(0)
actor = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Tanh())
critic = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1))
actor_opt, critic_opt = torch.optim.Adam(actor.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 2e-3)
env, memory, updates = Pendulum(), deque(maxlen=5000), 0
state = env.reset()
for t in range(1200):
    with torch.no_grad():
        action = actor(state).item() + 0.3 * random.gauss(0, 1)
    after, reward, done = env.step(action)
    memory.append((state, torch.tensor([action]), reward, after, float(not done)))
    state = env.reset() if done else after
    if t < 100:
        continue
    rows = random.sample(memory, 32)
    s, a, s2 = (torch.stack([r[k] for r in rows]) for k in (0, 1, 3))
    r, alive = (torch.tensor([row[k] for row in rows])[:, None] for k in (2, 4))
    with torch.no_grad():
        target = r + 0.95 * alive * critic(torch.cat([s2, actor(s2)], 1))
    critic_loss = nn.functional.mse_loss(critic(torch.cat([s, a], 1)), target)
    actor_loss = -critic(torch.cat([s, actor(s)], 1)).mean() if updates >= 633 else None
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()  # MUTATES
    if actor_loss is not None:
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()
    updates += 1
