"""Soft actor-critic: after the critic-only warm-up, the actor update fails on torch >= 1.5.

Source: https://github.com/toshikwa/soft-actor-critic.pytorch/issues/1 (same: https://github.com/thu-ml/tianshou/issues/37)
"""
import copy
import math

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "b", "kind": "inplace", "mutating_marker": "MUTATES", "step": 187,
    "plain": {"outcome": "raises", "exception": "RuntimeError", "match": "modified by an inplace operation"},
    "set": "twelfth", "written": "2026-11-25",
}


class Critic(nn.Module):
    def __init__(self, obs, act, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs + act, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 1))

    def forward(self, obs, act):
        return self.net(torch.cat([obs, act], -1))


class Actor(nn.Module):
    def __init__(self, obs, act, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(obs, hidden), nn.ReLU(), nn.Linear(hidden, 2 * act))

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        dist = torch.distributions.Normal(mean, log_std.clamp(-5, 1).exp())
        raw = dist.rsample()
        log_prob = dist.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), log_prob.sum(-1, keepdim=True)


class SAC:
    def __init__(self, obs=3, act=1, gamma=0.98, tau=0.01, alpha=0.1, actor_start=187):
        self.critic, self.actor = Critic(obs, act), Actor(obs, act)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.critic_optim = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.gamma, self.tau, self.alpha, self.actor_start = gamma, tau, alpha, actor_start
        self.updates = 0

    def calc_critic_loss(self, obs, act, rew, nxt):
        with torch.no_grad():
            a2, logp2 = self.actor(nxt)
            y = rew + self.gamma * (self.target(nxt, a2) - self.alpha * logp2)
        return F.mse_loss(self.critic(obs, act), y)

    def calc_policy_loss(self, obs):
        a, logp = self.actor(obs)
        return (self.alpha * logp - self.critic(obs, a)).mean()

    def learn(self, batch):
        critic_loss = self.calc_critic_loss(*batch)
        policy_loss = self.calc_policy_loss(batch[0]) if self.updates >= self.actor_start else None
        self.critic_optim.zero_grad()
        critic_loss.backward()
        self.critic_optim.step()  # MUTATES
        if policy_loss is not None:
            self.actor_optim.zero_grad()
            policy_loss.backward()
            self.actor_optim.step()
        with torch.no_grad():
            for p, q in zip(self.critic.parameters(), self.target.parameters()):
                q.lerp_(p, self.tau)
        self.updates += 1
        return critic_loss.item()


def fake_replay(n=2048):
    th, vel = (torch.rand(n, 1) * 2 - 1) * math.pi, torch.randn(n, 1)
    act = torch.rand(n, 1) * 2 - 1
    vel2 = vel + 0.1 * (torch.sin(th) + act)
    th2 = th + 0.1 * vel2
    obs = torch.cat([th.cos(), th.sin(), vel], 1)
    nxt = torch.cat([th2.cos(), th2.sin(), vel2], 1)
    return obs, act, th.cos() - 0.1 * vel.pow(2), nxt


def main():
    torch.manual_seed(0)
    agent, memory = SAC(), fake_replay()
    for it in range(400):
        idx = torch.randint(0, 2048, (64,))
        loss = agent.learn([m[idx] for m in memory])
        if it % 50 == 0:
            print(it, round(loss, 4))


if __name__ == "__main__":
    main()
