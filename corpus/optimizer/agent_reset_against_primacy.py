"""Q-learning on a small grid with periodic resets against the primacy bias: the network is made anew, its target is copied from it, the replay memory stays; the optimizer was made for the first one.

Report: https://github.com/HorizonRobotics/alf/pull/1591 (periodic reset of models; new values have to be copied into the parameters that exist, which the optimizers hold)
"""
import copy
import random

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "step": 60,
    "set": "tenth", "written": "2026-11-23",
}
SIZE = 5


class Grid:
    """A walk from a corner to the other one around a pit."""

    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]

    def reset(self):
        self.at, self.time = (0, 0), 0
        return self.at

    def step(self, action):
        dx, dy = self.moves[action]
        self.at = (min(max(self.at[0] + dx, 0), SIZE - 1), min(max(self.at[1] + dy, 0), SIZE - 1))
        self.time += 1
        if self.at == (SIZE - 1, SIZE - 1):
            return self.at, 1.0, True
        if self.at == (2, 2):
            return self.at, -1.0, True
        return self.at, -0.01, self.time >= 30


class QNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * SIZE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, at):
        return self.net(F.one_hot(at, SIZE).flatten(1).float())


class Agent:
    def __init__(self):
        self.q = QNet()
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=2e-3)  # OPTIMIZER

    def reset(self):
        self.q = QNet()
        self.target = copy.deepcopy(self.q)

    @torch.no_grad()
    def act(self, at, epsilon):
        if random.random() < epsilon:
            return random.randrange(4)
        return self.q(torch.tensor([at])).argmax().item()

    def learn(self, batch, gamma=0.95):
        at, action, reward, following, done = (torch.tensor(x) for x in zip(*batch))
        with torch.no_grad():
            wanted = reward + gamma * (1 - done.float()) * self.target(following).max(1).values
        value = self.q(at).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


random.seed(0)
torch.manual_seed(0)
env, agent, memory = Grid(), Agent(), []
at = env.reset()
for step in range(120):
    if step == 60:
        agent.reset()
    for _ in range(8):
        action = agent.act(at, max(0.2, 1 - step / 60))
        following, reward, done = env.step(action)
        memory.append((at, action, reward, following, done))
        at = env.reset() if done else following
    loss = agent.learn(random.choices(memory, k=64))
    if step % 5 == 0:
        agent.target.load_state_dict(agent.q.state_dict())
    if step % 15 == 0:
        print(step, loss)
