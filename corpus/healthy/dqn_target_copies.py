"""Double DQN with a dueling head and a hard-copied target network on a small chain world.

Right because: the target network is only ever written by load_state_dict, the bootstrap
value is computed under no_grad, only the Q-value of the taken action enters the loss, and
the first steps merely fill the replay buffer (no update happens on purpose).
"""
import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


class Corridor:
    """Walk on a noisy 1-d track towards a goal; reward is progress, goal gives a bonus."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos, self.goal, self.t = self.rng.uniform(-1, 1), self.rng.uniform(-1, 1), 0
        return self.observe()

    def observe(self):
        return np.array([self.pos, self.goal, self.goal - self.pos, self.t / 30], dtype=np.float32)

    def step(self, action):
        before = abs(self.goal - self.pos)
        self.pos += (action - 1) * 0.12 + self.rng.normal(0, 0.01)
        self.t += 1
        after = abs(self.goal - self.pos)
        reached = after < 0.08
        return self.observe(), (before - after) * 2 + float(reached), reached, self.t >= 30


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.value, self.adv = nn.Linear(64, 1), nn.Linear(64, 3)

    def forward(self, s):
        h = self.trunk(s)
        a = self.adv(h)
        return self.value(h) + a - a.mean(-1, keepdim=True)


def td_loss(online, target, batch, gamma=0.97):
    s, a, r, s2, done = batch
    q = online(s).gather(1, a.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = online(s2).argmax(1, keepdim=True)
        y = r + gamma * (1 - done) * target(s2).gather(1, best).squeeze(1)
    return F.smooth_l1_loss(q, y)


def sample(buffer, n):
    s, a, r, s2, d = zip(*random.sample(buffer, n))
    f = lambda v: torch.from_numpy(np.asarray(v, dtype=np.float32))
    return f(s), torch.tensor(a), f(r), f(s2), f(d)


def main():
    random.seed(0); torch.manual_seed(0)
    env, buffer = Corridor(0), deque(maxlen=4000)
    online = Dueling()
    target = copy.deepcopy(online)
    for p in target.parameters():
        p.requires_grad = False
    opt = torch.optim.Adam(online.parameters(), lr=1e-3)
    obs, ret, returns, losses, updates = env.reset(), 0.0, [], [], 0
    for t in range(2400):
        eps = max(0.05, 1 - t / 1200)
        if random.random() < eps:
            act = random.randrange(3)
        else:
            with torch.no_grad():
                act = online(torch.from_numpy(obs)).argmax().item()
        nxt, rew, done, timeout = env.step(act)
        buffer.append((obs, act, rew, nxt, float(done)))
        obs, ret = nxt, ret + rew
        if done or timeout:
            returns.append(ret)
            obs, ret = env.reset(), 0.0
        if t >= 300 and t % 3 == 0:
            loss = td_loss(online, target, sample(buffer, 64))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(online.parameters(), 5.0)
            opt.step()
            losses.append(loss.item())
            updates += 1
            if updates % 60 == 0:
                target.load_state_dict(online.state_dict())
                print(f"t {t} td loss {np.mean(losses[-60:]):.4f} return {np.mean(returns[-20:]):.3f}")
    print("first returns", np.mean(returns[:20]), "last returns", np.mean(returns[-20:]))


if __name__ == "__main__":
    main()
