"""Double DQN on a small grid with a target network copied every 25 updates. Nothing goes wrong.
Report: https://github.com/andri27-ts/Reinforcement-Learning/issues/14 (the target network must not be a reference to the moving network)
"""
import copy
import random
from collections import deque
import torch
import torch.nn as nn

EXPECT = {"framework": "plain", "kind": None, "set": "twentysecond", "written": "2026-11-28"}

SIZE, GAMMA = 5, 0.9
MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0)]


class GridEnv:
    def reset(self):
        self.pos, self.left = (random.randrange(SIZE), random.randrange(SIZE - 1)), 20
        return self.encode()

    def encode(self):
        return torch.eye(SIZE * SIZE)[self.pos[0] * SIZE + self.pos[1]]

    def step(self, a):
        r, c = self.pos[0] + MOVES[a][0], self.pos[1] + MOVES[a][1]
        self.pos = (min(max(r, 0), SIZE - 1), min(max(c, 0), SIZE - 1))
        self.left -= 1
        goal = self.pos == (SIZE - 1, SIZE - 1)
        return self.encode(), (1.0 if goal else -0.02), goal, goal or self.left == 0


class Agent:
    def __init__(self):
        self.q = nn.Sequential(nn.Linear(SIZE * SIZE, 64), nn.ReLU(), nn.Linear(64, 4))
        self.target = copy.deepcopy(self.q)
        self.target.requires_grad_(False)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=4e-3)
        self.updates = 0

    def act(self, s, eps):
        if random.random() < eps:
            return random.randrange(4)
        with torch.no_grad():
            return self.q(s).argmax().item()

    def learn(self, batch):
        s, a, r, s2, d = (torch.stack(z) if torch.is_tensor(z[0]) else torch.tensor(z) for z in zip(*batch))
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            goal = r + GAMMA * (1 - d.float()) * self.target(s2).gather(1, best).squeeze(1)
        value = self.q(s).gather(1, a[:, None]).squeeze(1)
        self.opt.zero_grad()
        loss = nn.functional.smooth_l1_loss(value, goal)
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        self.updates += 1
        if self.updates % 25 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item()


def success(env, agent, n=20):
    wins = 0
    for _ in range(n):
        s, done = env.reset(), False
        while not done:
            s, _, goal, done = env.step(agent.act(s, 0.05))
        wins += goal / n
    return wins


def main():
    random.seed(0)
    torch.manual_seed(0)
    env, agent, memory = GridEnv(), Agent(), deque(maxlen=3000)
    s = env.reset()
    for t in range(2000):
        a = agent.act(s, eps=max(0.1, 1 - t / 1200))
        s2, r, goal, done = env.step(a)
        memory.append((s, a, r, s2, goal))
        s = env.reset() if done else s2
        if t >= 400 and t % 4 == 0:
            loss = agent.learn(random.sample(memory, 64))
            if agent.updates % 80 == 0:
                print(f"update {agent.updates} loss {loss:.4f} success {success(env, agent):.2f}")
                s = env.reset()


main()
