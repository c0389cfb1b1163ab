"""Balance a pole with a value network, a replay memory and a copied target network.

What looks suspicious: the loss goes up over the run instead of down, and the predicted values grow without a stop for long.
Why it is right: the reward is one per step kept upright, so as the agent gets better the true values grow from about one to
tens, the targets move with every copy of the network, and the errors grow with the size of the values; the return rises.
Report: https://github.com/IntelLabs/coach/issues/214
"""
import copy
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}


class Pole:
    def __init__(self, seed, limit=300):
        self.rng = np.random.default_rng(seed)
        self.limit = limit

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, size=4)
        self.t = 0
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action else -10.0
        c, s = math.cos(angle), math.sin(angle)
        temp = (force + 0.05 * spin ** 2 * s) / 1.1
        spin_acc = (9.8 * s - c * temp) / (0.5 * (4 / 3 - 0.1 * c ** 2 / 1.1))
        acc = temp - 0.05 * spin_acc * c / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * acc, angle + 0.02 * spin, spin + 0.02 * spin_acc])
        self.t += 1
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state.astype(np.float32), 1.0, fell, self.t >= self.limit


class Values(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, obs):
        return self.net(obs)


class Memory:
    def __init__(self, size):
        self.size, self.rows, self.at = size, [], 0

    def add(self, row):
        if len(self.rows) < self.size:
            self.rows.append(row)
        else:
            self.rows[self.at] = row
        self.at = (self.at + 1) % self.size

    def sample(self, n, rng):
        obs, act, rew, nxt, fell = zip(*rng.choices(self.rows, k=n))
        return (torch.from_numpy(np.stack(obs)), torch.tensor(act), torch.tensor(rew),
                torch.from_numpy(np.stack(nxt)), torch.tensor(fell, dtype=torch.float32))


def learn(online, target, optimizer, batch, gamma=0.98):
    obs, act, rew, nxt, fell = batch
    with torch.no_grad():
        best = online(nxt).argmax(1, keepdim=True)
        goal = rew + gamma * (1 - fell) * target(nxt).gather(1, best).squeeze(1)
    guess = online(obs).gather(1, act.unsqueeze(1)).squeeze(1)
    loss = F.mse_loss(guess, goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    return loss.item(), guess.mean().item()


def main():
    torch.manual_seed(0)
    rng = random.Random(0)
    env, memory = Pole(0), Memory(20_000)
    online = Values()
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    obs, lengths, losses, guesses = env.reset(), [], [], []
    for step in range(1, 14_001):
        epsilon = max(0.03, 1.0 - step / 4000)
        if rng.random() < epsilon:
            action = rng.randrange(2)
        else:
            with torch.no_grad():
                action = int(online(torch.from_numpy(obs)).argmax())
        nxt, reward, fell, over = env.step(action)
        memory.add((obs, action, reward, nxt, fell))
        obs = nxt
        if fell or over:
            lengths.append(env.t)
            obs = env.reset()
        if step >= 500 and step % 2 == 0:
            loss, guess = learn(online, target, optimizer, memory.sample(64, rng))
            losses.append(loss)
            guesses.append(guess)
        if step % 400 == 0:
            target.load_state_dict(online.state_dict())
        if step % 1400 == 0:
            print(f"step {step:5d}  loss {np.mean(losses[-300:]):.3f}  value {np.mean(guesses[-300:]):6.2f}  episode length {np.mean(lengths[-10:]):.1f}")


if __name__ == "__main__":
    main()
