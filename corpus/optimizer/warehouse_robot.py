"""A robot in a warehouse aisle of ten cells shall learn with Q-learning to carry a parcel to the far end, although a
small snack of reward lies at the near end.

Report: https://github.com/thesouther/MARL/issues/8
(also https://github.com/ageron/handson-ml2/issues/89)
"""
import copy
import random
from collections import deque

import numpy as np
import torch
from torch import nn

EXPECT = {
    "kind": "state-not-copied",
    "line": ("cause", "cause"),
    "plain": "The loss becomes very small, but the robot goes for the near snack or wanders; the return stays low.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

CELLS, START, GAMMA, LIMIT = 10, 3, 0.95, 40


class Aisle:
    def reset(self):
        self.cell, self.t = START, 0
        return self.observe()

    def observe(self):
        o = np.zeros(CELLS, dtype=np.float32)
        o[self.cell] = 1
        return o

    def step(self, action):
        self.cell += 1 if action == 1 else -1
        self.t += 1
        if self.cell <= 0:
            self.cell = 0
            return self.observe(), 0.1, True
        if self.cell >= CELLS - 1:
            self.cell = CELLS - 1
            return self.observe(), 1.0, True
        return self.observe(), 0.0, self.t >= LIMIT


class Agent:
    def __init__(self, seed):
        self.online = nn.Sequential(nn.Linear(CELLS, 32), nn.ReLU(), nn.Linear(32, 2))
        self.target = copy.deepcopy(self.online)
        self.opt = torch.optim.Adam(self.online.parameters(), lr=3e-3)
        self.memory = deque(maxlen=4000)
        self.rng = random.Random(seed)
        self.updates = 0

    def act(self, obs, epsilon):
        if self.rng.random() < epsilon:
            return self.rng.randrange(2)
        with torch.no_grad():
            return int(self.online(torch.from_numpy(obs)).argmax())

    def refresh_target(self):
        self.target.load_state_dict(self.target.state_dict())  # <-- cause

    def learn(self, batch_size=32):
        obs, act, rew, nxt, done = zip(*self.rng.sample(self.memory, batch_size))
        obs, nxt = torch.from_numpy(np.stack(obs)), torch.from_numpy(np.stack(nxt))
        act, rew, done = torch.tensor(act), torch.tensor(rew), torch.tensor(done, dtype=torch.float32)
        with torch.no_grad():
            goal = rew + GAMMA * (1 - done) * self.target(nxt).max(1).values
        value = self.online(obs).gather(1, act[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % 50 == 0:
            self.refresh_target()
        return loss.item()


def play(env, agent, epsilon, learn):
    obs, total, losses, done = env.reset(), 0.0, [], False
    while not done:
        action = agent.act(obs, epsilon)
        nxt, reward, done = env.step(action)
        total += reward
        if learn:
            agent.memory.append((obs, action, reward, nxt, done))
            if len(agent.memory) > 300:
                losses.append(agent.learn())
        obs = nxt
    return total, losses


def main():
    torch.manual_seed(7)
    env, agent = Aisle(), Agent(7)
    recent = deque(maxlen=200)
    for episode in range(1, 181):
        _, losses = play(env, agent, max(0.3, 1 - episode / 120), True)
        recent.extend(losses)
        if episode % 30 == 0:
            value, _ = play(env, agent, 0.0, False)
            print(f"episode {episode}  loss {np.mean(recent):.5f}  greedy return {value:.2f}")


if __name__ == "__main__":
    main()
