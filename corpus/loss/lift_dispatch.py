"""The simulator hands out its one observation buffer, overwritten on every move, and the replay memory stores it by
reference: in each stored transition state and next state are the same, latest array.

Report: https://github.com/Itomigna2/Muesli-lunarlander/issues/1 (a replay buffer keeps references, and all entries
equal the most recent episode)
"""
import random
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "next-states-equal",
    "line": ("returned", "HERE"),
    "plain": "greedy score -2.0, served 0.00 while the loss falls; with view.copy() score 1.23, served 1.00",
    "set": "twentyeighth",
    "written": "2026-11-29",
}

FLOORS = 8


class Lift:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.view = np.zeros(2 * FLOORS + 1, dtype=np.float32)

    def _fill(self):
        self.view[:] = 0.0
        self.view[self.cabin] = 1.0
        goal = self.drop if self.loaded else self.call
        self.view[FLOORS + goal] = 1.0
        self.view[-1] = float(self.loaded)
        return self.view  # HERE

    def reset(self):
        self.cabin, self.call, self.drop = self.rng.integers(0, FLOORS, 3)
        self.loaded = False
        self.moves = 0
        return self._fill()

    def step(self, action):
        self.moves += 1
        reward, done = -0.05, False
        if action == 0:
            self.cabin = min(FLOORS - 1, self.cabin + 1)
        elif action == 1:
            self.cabin = max(0, self.cabin - 1)
        elif not self.loaded and self.cabin == self.call:
            self.loaded, reward = True, 0.5
        elif self.loaded and self.cabin == self.drop:
            reward, done = 1.0, True
        else:
            reward = -0.2
        return self._fill(), reward, done or self.moves >= 40, done


def make_net():
    return nn.Sequential(nn.Linear(2 * FLOORS + 1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


class Dispatcher:
    def __init__(self, gamma=0.95, capacity=5000):
        self.online, self.target = make_net(), make_net()
        self.target.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.memory = deque(maxlen=capacity)
        self.gamma = gamma

    def act(self, obs, eps):
        if random.random() < eps:
            return random.randrange(3)
        with torch.no_grad():
            return int(self.online(torch.from_numpy(obs)).argmax())

    def remember(self, obs, action, reward, nxt, final):
        self.memory.append((obs, action, reward, nxt, float(final)))

    def learn(self, batch=64):
        obs, act, rew, nxt, final = zip(*random.sample(self.memory, batch))
        obs, nxt = torch.tensor(np.stack(obs)), torch.tensor(np.stack(nxt))
        act, rew, final = torch.tensor(act), torch.tensor(rew), torch.tensor(final)
        q = self.online(obs).gather(1, act.view(-1, 1)).squeeze(1)
        with torch.no_grad():
            goal = rew + self.gamma * (1 - final) * self.target(nxt).max(dim=1).values
        loss = F.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def play(agent, episodes=60):
    env, total, served = Lift(1000), 0.0, 0
    for _ in range(episodes):
        obs, over = env.reset(), False
        while not over:
            obs, reward, over, done = env.step(agent.act(obs, 0.0))
            total += reward
        served += done
    return total / episodes, served / episodes


def main(moves=4000):
    random.seed(2), np.random.seed(2), torch.manual_seed(2)
    env, agent, losses = Lift(5), Dispatcher(), []
    obs = env.reset()
    for t in range(moves):
        action = agent.act(obs, max(0.1, 1.0 - t / 2500))
        nxt, reward, over, done = env.step(action)
        agent.remember(obs, action, reward, nxt, done)
        obs = env.reset() if over else nxt
        if t >= 400 and t % 4 == 0:
            losses.append(agent.learn())
        if t % 200 == 0:
            agent.target.load_state_dict(agent.online.state_dict())
        if (t + 1) % 800 == 0:
            score, served = play(agent)
            print(f"move {t + 1} loss {np.mean(losses[-100:]) if losses else 0:.4f} score {score:.2f} served {served:.2f}")


if __name__ == "__main__":
    main()
