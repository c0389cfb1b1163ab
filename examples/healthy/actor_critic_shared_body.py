"""Healthy: advantage actor-critic. The actor's loss takes the value detached, and the two are trained in turn."""

import torch
from torch import nn

EXPECT = {"kind": None}

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
actor, critic = nn.Linear(32, 2), nn.Linear(32, 1)
of_actor = torch.optim.Adam([*body.parameters(), *actor.parameters()], 1e-3)
of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
state = torch.randn(16, 4)
for i in range(12):
    policy = torch.distributions.Categorical(logits=actor(body(state)))
    action = policy.sample()
    following = state + 0.1 * torch.randn_like(state)
    reward = (action == (state[:, 0] > 0)).float()
    with torch.no_grad():
        target = reward + 0.9 * critic(body(following)).squeeze(1)
        advantage = target - critic(body(state)).squeeze(1)
    of_critic.zero_grad()
    nn.functional.mse_loss(critic(body(state).detach()).squeeze(1), target).backward()
    of_critic.step()
    of_actor.zero_grad()
    (-(policy.log_prob(action) * advantage).mean() - 0.01 * policy.entropy().mean()).backward()
    of_actor.step()
    state = following
print(reward.mean().item())
