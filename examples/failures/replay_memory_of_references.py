"""A simulator returns one array that it overwrites, and the replay memory keeps references to it."""

import random

import torch
from torch import nn

EXPECT = {"kind": "next-states-equal", "line": ("returned", "ARRAY")}
CELLS = 6


class Corridor:
    def __init__(self):
        self.view, self.cell = torch.zeros(CELLS), 0

    def step(self, action):
        self.cell = min(max(self.cell + 2 * action - 1, 0), CELLS - 1)
        self.view.zero_()
        self.view[self.cell] = 1.0
        return self.view  # ARRAY


def main():
    random.seed(0), torch.manual_seed(0)
    corridor, memory = Corridor(), []
    net, target = nn.Linear(CELLS, 2), nn.Linear(CELLS, 2)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    state = corridor.step(0)
    for move in range(120):
        action = random.randrange(2)
        following = corridor.step(action)
        memory.append((state, action, float(corridor.cell == CELLS - 1), following))
        state = following
        if len(memory) >= 16:
            states, actions, rewards, next_states = zip(*random.sample(memory, 16))
            states, next_states = torch.stack(states), torch.stack(next_states)
            values = net(states).gather(1, torch.tensor(actions)[:, None])[:, 0]
            with torch.no_grad():
                goal = torch.tensor(rewards) + 0.9 * target(next_states).max(1).values
            loss = nn.functional.mse_loss(values, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if move % 20 == 0:
            target.load_state_dict(net.state_dict())


if __name__ == "__main__":
    main()
