"""Soft actor-critic with twin critics, Polyak targets and a learned temperature.

Right because: three optimizers own three disjoint sets of parameters; while the actor is
updated the critics are switched to requires_grad False so that its loss reaches only the
actor (dq/da still flows), afterwards they are switched back; the temperature sees a
detached log-probability; the targets are Polyak averages and never get gradients.
"""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def net(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, o))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net(2, 2)

    def forward(self, s):
        mu, log_std = self.body(s).chunk(2, -1)
        log_std = -5 + 3.5 * (torch.tanh(log_std) + 1)
        raw = torch.distributions.Normal(mu, log_std.exp()).rsample()
        act = torch.tanh(raw)
        logp = (-0.5 * ((raw - mu) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
                - 2 * (math.log(2) - raw - F.softplus(-2 * raw)))
        return act, logp.sum(-1)


class Twin(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = net(3, 1), net(3, 1)

    def forward(self, s, u):
        x = torch.cat([s, u], -1)
        return self.a(x).squeeze(-1), self.b(x).squeeze(-1)


def dynamics(s, u):
    """A batch of point masses on a spring with friction; the reward likes the origin."""
    pos, vel = s[:, 0], s[:, 1]
    vel = 0.95 * vel + 0.15 * u[:, 0] + 0.01 * torch.randn_like(vel)
    pos = (pos + 0.15 * vel).clamp(-2, 2)
    return torch.stack([pos, vel], 1), -(pos ** 2 + 0.1 * vel ** 2 + 0.01 * u[:, 0] ** 2)


def main():
    torch.manual_seed(11)
    actor, critic = Actor(), Twin()
    target = copy.deepcopy(critic).requires_grad_(False)
    log_alpha = nn.Parameter(torch.tensor(-1.5))
    opt_a = torch.optim.Adam(actor.parameters(), lr=1e-3)
    opt_c = torch.optim.Adam(critic.parameters(), lr=2e-3)
    opt_t = torch.optim.Adam([log_alpha], lr=3e-3)
    store, state, cost = [], torch.rand(32, 2) * 2 - 1, []
    gamma, target_entropy = 0.9, -1.0
    for step in range(500):
        with torch.no_grad():
            u, _ = actor(state)
            nxt, rew = dynamics(state, u)
        store.append((state, u, rew, nxt))
        store = store[-200:]
        state = torch.rand(32, 2) * 2 - 1 if step % 25 == 24 else nxt
        cost.append(-rew.mean().item())

        pick = torch.randint(0, len(store), (4,)).tolist()
        s, u, r, s2 = (torch.cat(c) for c in zip(*(store[i] for i in pick)))
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            u2, lp2 = actor(s2)
            y = r + gamma * (torch.minimum(*target(s2, u2)) - alpha * lp2)
        qa, qb = critic(s, u)
        loss_c = F.mse_loss(qa, y) + F.mse_loss(qb, y)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()

        critic.requires_grad_(False)
        new_u, lp = actor(s)
        loss_a = (alpha * lp - torch.minimum(*critic(s, new_u))).mean()
        opt_a.zero_grad()
        loss_a.backward()
        opt_a.step()
        critic.requires_grad_(True)

        loss_t = -(log_alpha * (lp.detach() + target_entropy)).mean()
        opt_t.zero_grad()
        loss_t.backward()
        opt_t.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(critic.parameters()), 0.02)
        if step % 100 == 99:
            print(f"step {step} cost {sum(cost[-100:]) / 100:.4f} critic {loss_c.item():.4f} alpha {alpha.item():.3f}")


if __name__ == "__main__":
    main()
