"""Heating controller that first imitates a thermostat and then is trained through a learned model of the room: the action for imagining is drawn with sample(), which cuts it off from the network that proposed it.

Report: https://github.com/jankrepl/deepdow/pull/106 (sample makes it impossible to compute the gradients, rsample has to be used)
"""
import torch
from torch import nn
from torch.distributions import Normal

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "step": 60,
    "set": "tenth", "written": "2026-11-23",
}


class Room:
    """Temperature inside and outside, and the hour; heating warms the room, walls lose it."""

    def start(self, n):
        return torch.stack([14 + 8 * torch.rand(n), 12 * torch.rand(n) - 4, 6.28 * torch.rand(n)], 1)

    def step(self, state, heat):
        inside, outside, hour = state.unbind(1)
        inside = inside + 0.15 * (outside - inside) + 2.5 * heat.squeeze(1) + 0.05 * torch.randn_like(inside)
        return torch.stack([inside, outside + 0.3 * hour.sin(), (hour + 0.26) % 6.28], 1)


def features(state):
    return torch.stack([state[:, 0] / 10 - 2, state[:, 1] / 10, state[:, 2].sin(), state[:, 2].cos()], 1)


class Controller(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.mean, self.log_std = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, state):
        h = self.body(features(state))
        return Normal(self.mean(h), self.log_std(h).clamp(-4, 0).exp())


class RoomModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3))

    def forward(self, state, heat):
        return state + self.net(torch.cat([features(state), heat], 1))


class Agent(nn.Module):
    def __init__(self, horizon=3, wish=21.0):
        super().__init__()
        self.controller, self.model = Controller(), RoomModel()
        self.horizon, self.wish = horizon, wish

    def imitate(self, state):
        thermostat = (state[:, :1] < self.wish).float()
        return -self.controller(state).log_prob(thermostat).mean()

    def imagine(self, state):
        cost = 0.0
        for _ in range(self.horizon):
            heat = self.controller(state).sample()  # CUT
            state = self.model(state, heat)
            cost = cost + ((state[:, 0] - self.wish) / 10).square().mean() + 0.01 * heat.square().mean()
        return cost / self.horizon


torch.manual_seed(0)
room, agent = Room(), Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
for step in range(110):
    state, heat = room.start(64), torch.rand(64, 1)
    loss = (agent.model(state, heat) - room.step(state, heat)).square().mean()
    if step < 60:
        loss = loss + agent.imitate(state)
    else:
        loss = loss + agent.imagine(state)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
