"""Soft actor-critic with a fixed temperature at first: when it is tuned, its loss takes the log-probability of the actor's update as it is, whose graph the actor's backward has freed.

Report: https://github.com/DLR-RM/stable-baselines3/issues/36 (detach the log-probability in the loss of the entropy coefficient, so that it does not go back into the policy)
"""
import copy

import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 60,
    "set": "eighth", "written": "2026-11-22",
}


def mlp(inputs, outputs, hidden=32):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(3, 2)

    def forward(self, state):
        mean, log_std = self.net(state).chunk(2, -1)
        log_std = log_std.clamp(-4, 1)
        raw = mean + log_std.exp() * torch.randn_like(mean)
        log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(raw)
        correction = 2 * (0.6931 - raw - nn.functional.softplus(-2 * raw))
        return torch.tanh(raw), (log_prob - correction).sum(-1, keepdim=True)


class SAC:
    def __init__(self, tune_after, target_entropy=-1.0):
        self.actor, self.critic = Actor(), mlp(4, 1)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.tensor(-1.5, requires_grad=True)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=1e-3)
        self.tune_after, self.target_entropy, self.updates = tune_after, target_entropy, 0

    def update(self, state, action, reward, following):
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, next_log_prob = self.actor(following)
            goal = reward + 0.95 * (self.target(torch.cat([following, next_action], 1)) - alpha * next_log_prob)
        critic_loss = (self.critic(torch.cat([state, action], 1)) - goal).square().mean()
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        proposed, log_prob = self.actor(state)
        actor_loss = (alpha * log_prob - self.critic(torch.cat([state, proposed], 1))).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()

        if self.updates >= self.tune_after:
            alpha_loss = -(self.log_alpha * (log_prob + self.target_entropy)).mean()  # REUSED
            self.alpha_opt.zero_grad()
            alpha_loss.backward()
            self.alpha_opt.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters()):
                slow.lerp_(fast, 0.02)
        self.updates += 1
        return critic_loss.item(), actor_loss.item()


torch.manual_seed(0)
agent = SAC(tune_after=60)
for step in range(120):
    state, action = torch.randn(64, 3), torch.rand(64, 1) * 2 - 1
    following = 0.9 * state + 0.3 * action * torch.tensor([1.0, 0.5, 0.0])
    reward = -following[:, :1].square()
    values = agent.update(state, action, reward, following)
    if step % 20 == 0:
        print(step, *values)
