"""Trains a double DQN on a small grid; healthy: the target network is a frozen copy, refreshed every 20 updates, outside the optimizer.
Report: none (what looks odd and is right: targets without gradient, a network that moves in jumps, gradients clipped by value)
"""
import copy
import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"framework": "plain", "kind": None, "set": "twentieth", "written": "2026-11-27"}

SIDE = 5
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))


class Grid:
    def reset(self):
        self.at = [random.randrange(SIDE), random.randrange(SIDE)]
        self.goal = [random.randrange(SIDE), random.randrange(SIDE)]
        self.t = 0
        return self.state()

    def state(self):
        v = torch.zeros(4, SIDE)
        for row, value in enumerate(self.at + self.goal):
            v[row, value] = 1.0
        return v.flatten()

    def step(self, action):
        for axis in (0, 1):
            self.at[axis] = min(SIDE - 1, max(0, self.at[axis] + MOVES[action][axis]))
        self.t += 1
        found = self.at == self.goal
        return self.state(), 1.0 if found else -0.05, found, found or self.t >= 20


class Agent:
    def __init__(self):
        self.online = nn.Sequential(nn.Linear(4 * SIDE, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad_(False)
        self.optimizer = torch.optim.RMSprop(self.online.parameters(), lr=1e-3)
        self.memory = deque(maxlen=4000)
        self.updates = 0

    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(4)
        with torch.no_grad():
            return int(self.online(state).argmax())

    def learn(self, gamma=0.95):
        s, a, r, s2, done = zip(*random.sample(self.memory, 64))
        s, s2 = torch.stack(s), torch.stack(s2)
        a, r, done = torch.tensor(a), torch.tensor(r), torch.tensor(done, dtype=torch.float32)
        with torch.no_grad():
            best = self.online(s2).argmax(1, keepdim=True)
            y = r + gamma * (1 - done) * self.target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(self.online(s).gather(1, a[:, None]).squeeze(1), y)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.online.parameters(), 1.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % 20 == 0:
            self.target.load_state_dict(self.online.state_dict())
        return loss.item()


def main():
    random.seed(3)
    torch.manual_seed(3)
    env, agent = Grid(), Agent()
    state, found, episodes = env.reset(), 0, 0
    for tick in range(3300):
        action = agent.act(state, epsilon=max(0.1, 1 - tick / 2000))
        nxt, reward, success, over = env.step(action)
        agent.memory.append((state, action, reward, nxt, success))
        state = nxt
        if over:
            found, episodes = found + success, episodes + 1
            state = env.reset()
        if tick >= 300 and tick % 8 == 0:
            loss = agent.learn()
            if agent.updates % 75 == 0:
                print(f"update {agent.updates}: loss {loss:.4f}  goals {found}/{episodes}")
                found = episodes = 0


if __name__ == "__main__":
    main()
