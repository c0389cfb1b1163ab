"""Multi-agent PPO: advantages are computed once from the critic, with their graph, and used in every mini-epoch.

Report: https://github.com/hijkzzz/pymarl2/issues/46
"""
import torch
from torch import nn

EXPECT = {
    "class": "second-backward", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "second", "written": "2026-11-22",
}

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
critic = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 1e-3)


def train(obs, actions, rewards, old_logp, mini_epochs):
    returns = rewards.flip(0).cumsum(0).flip(0)
    advantages = returns - critic(obs)[:, 0]
    for _ in range(mini_epochs):
        logp = torch.distributions.Categorical(logits=actor(obs)).log_prob(actions)
        ratio = (logp - old_logp).exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)  # REUSED
        loss = -surrogate.mean() + 0.5 * (returns - critic(obs)[:, 0]).square().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
        opt.step()


for episode in range(40):
    obs = torch.randn(10, 6)
    with torch.no_grad():
        dist = torch.distributions.Categorical(logits=actor(obs))
        actions = dist.sample()
        old_logp = dist.log_prob(actions)
    train(obs, actions, (actions == 2).float(), old_logp, mini_epochs=1 if episode < 25 else 4)
