"""Healthy: as in Dreamer, a world model, an actor and a critic are trained in turn; the actor's loss goes through a world
model that is frozen meanwhile."""

import torch
from torch import nn

EXPECT = {"kind": None}

torch.manual_seed(0)
world = nn.GRUCell(2 + 2, 16)
decode, reward = nn.Linear(16, 2), nn.Linear(16, 1)
actor = nn.Sequential(nn.Linear(16, 16), nn.ELU(), nn.Linear(16, 2), nn.Tanh())
critic = nn.Sequential(nn.Linear(16, 16), nn.ELU(), nn.Linear(16, 1))
parts = [nn.ModuleList([world, decode, reward]), actor, critic]
of_world, of_actor, of_critic = (torch.optim.Adam(part.parameters(), 1e-3) for part in parts)
for i in range(6):
    seen, done = torch.randn(5, 8, 2), torch.randn(5, 8, 2)
    h, loss, states = torch.zeros(8, 16), torch.zeros(()), []
    for x, a in zip(seen, done, strict=True):
        h = world(torch.cat([x, a], 1), h)
        loss = loss + (decode(h) - x).square().mean() + (reward(h) - x.sum(1, keepdim=True)).square().mean()
        states.append(h.detach())
    of_world.zero_grad()
    loss.backward()
    of_world.step()

    parts[0].requires_grad_(False)
    critic.requires_grad_(False)
    h, gain, dreamt = torch.cat(states), torch.zeros(()), []
    for _ in range(3):
        h = world(torch.cat([decode(h), actor(h)], 1), h)
        dreamt.append(h.detach())
        gain = gain + reward(h).mean()
    of_actor.zero_grad()
    (-(gain + critic(h).mean())).backward()
    of_actor.step()
    parts[0].requires_grad_(True)
    critic.requires_grad_(True)

    with torch.no_grad():
        target = reward(torch.cat(dreamt)) + 0.9
    of_critic.zero_grad()
    (critic(torch.cat(dreamt)) - target).square().mean().backward()
    of_critic.step()
print(loss.item(), gain.item())
