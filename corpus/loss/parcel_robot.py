"""A parcel robot on a small floor plan learns with a deep Q network and a replay memory.

Report: https://github.com/kengz/SLM-Lab/pull/372
"""
import copy
import random
from collections import deque

import torch
from torch import nn

EXPECT = {
    "kind": "silent-broadcast",
    "line": ("cause", "HERE"),
    "plain": "the loss is a plausible number but the robot does not learn to reach the door, the success rate stays low",
    "set": "twentysixth",
    "written": "2026-11-29",
}

SIZE, LIMIT, BATCH, GAMMA = 5, 30, 64, 0.93
EPISODES = 160
WALLS = {(1, 1), (1, 2), (3, 3), (2, 3)}
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]
DOOR = (4, 4)


class Floor:
    def reset(self):
        free = [(r, c) for r in range(SIZE) for c in range(SIZE) if (r, c) not in WALLS and (r, c) != DOOR]
        self.place, self.time = random.choice(free), 0
        return self.observe()

    def observe(self):
        view = torch.zeros(SIZE * SIZE)
        view[self.place[0] * SIZE + self.place[1]] = 1.0
        return view

    def step(self, action):
        self.time += 1
        row, col = self.place[0] + MOVES[action][0], self.place[1] + MOVES[action][1]
        if 0 <= row < SIZE and 0 <= col < SIZE and (row, col) not in WALLS:
            self.place = (row, col)
        arrived = self.place == DOOR
        return self.observe(), (1.0 if arrived else -0.02), arrived, self.time >= LIMIT


class QNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(SIZE * SIZE, hidden), nn.ReLU(), nn.Linear(hidden, len(MOVES)))

    def forward(self, view):
        return self.net(view)


def learn(online, target, optimizer, memory):
    views, actions, rewards, nexts, dones = zip(*random.sample(memory, BATCH))
    views, nexts = torch.stack(views), torch.stack(nexts)
    actions = torch.tensor(actions).unsqueeze(1)
    rewards, dones = torch.tensor(rewards), torch.tensor(dones, dtype=torch.float32)
    chosen = online(views).gather(1, actions)  # HERE
    with torch.no_grad():
        goal = rewards + GAMMA * (1 - dones) * target(nexts).max(1).values
    loss = (chosen - goal).pow(2).mean()  # HERE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def success_rate(online, runs=100):
    floor, arrived_count = Floor(), 0
    for _ in range(runs):
        view, arrived, late = floor.reset(), False, False
        while not (arrived or late):
            view, _, arrived, late = floor.step(int(online(view).argmax()))
        arrived_count += arrived
    return arrived_count / runs


def main():
    torch.manual_seed(0)
    random.seed(0)
    floor, online = Floor(), QNet()
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
    memory, losses, steps = deque(maxlen=5000), deque(maxlen=200), 0
    for episode in range(1, EPISODES + 1):
        view, arrived, late = floor.reset(), False, False
        explore = max(0.1, 1.0 - episode / 150)
        while not (arrived or late):
            if random.random() < explore:
                action = random.randrange(len(MOVES))
            else:
                with torch.no_grad():
                    action = int(online(view).argmax())
            following, reward, arrived, late = floor.step(action)
            memory.append((view, action, reward, following, arrived))
            view, steps = following, steps + 1
            if len(memory) >= 300:
                losses.append(learn(online, target, optimizer, memory))
            if steps % 150 == 0:
                target.load_state_dict(online.state_dict())
        if episode % 40 == 0:
            mean = sum(losses) / max(1, len(losses))
            print(f"episode {episode:3d}  steps {steps:5d}  loss {mean:.5f}  success {success_rate(online):.2f}")
    print(f"final success rate {success_rate(online, 300):.3f}")


if __name__ == "__main__":
    main()
