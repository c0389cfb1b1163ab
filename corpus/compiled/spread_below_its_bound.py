"""Behaviour cloning of a reaching controller with a Gaussian policy; network and likelihood
are compiled together as one function, several passes over a buffer that grows."""

import math

import torch
import torch.nn as nn

EXPECT = {
    "kind": "zero-grad",
    "module": "actor.dist",
    "line": ("cut", "HERE"),
    "set": "compiled",
    "written": "2026-11-24",
}
torch.manual_seed(13)
OBS, ACT = 6, 2
LOG_STD_RANGE = (-1.2, 1.0)


class Obs(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(OBS, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, o):
        return torch.tanh(self.norm(self.lin(o)))


class DiagGauss(nn.Module):
    """State-independent spread, bounded for safety on the arm."""

    def __init__(self, width, act):
        super().__init__()
        self.mu = nn.Linear(width, act)
        self.log_std = nn.Parameter(torch.zeros(1))
        self.bounds = LOG_STD_RANGE

    def forward(self, h):
        low, high = self.bounds
        log_std = torch.clamp(self.log_std, low, high)  # HERE
        return self.mu(h), log_std.expand(h.shape[0], self.mu.out_features)


class Actor(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.obs = Obs(width)
        self.body = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.dist = DiagGauss(width, ACT)

    def forward(self, o):
        return self.dist(self.body(self.obs(o)))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = Actor()
        self.value = nn.Sequential(nn.Linear(OBS, 32), nn.Tanh(), nn.Linear(32, 1))


def controller(obs):
    pos, vel, goal = obs[:, :2], obs[:, 2:4], obs[:, 4:]
    return torch.tanh(1.2 * (goal - pos) - 0.6 * vel)


def rollouts(n):
    obs = torch.randn(n, OBS) * torch.tensor([1.0, 1.0, 0.5, 0.5, 1.0, 1.0])
    act = controller(obs) + 0.02 * torch.randn(n, ACT)
    ret = -(obs[:, 4:] - obs[:, :2]).norm(dim=1) - 0.1 * obs[:, 2:4].square().sum(1)
    return obs, act, ret


agent = Agent()
opt = torch.optim.Adam(
    [
        {"params": agent.actor.obs.parameters()},
        {"params": agent.actor.body.parameters()},
        {"params": agent.actor.dist.mu.parameters()},
        {"params": [agent.actor.dist.log_std], "lr": 8e-2},
        {"params": agent.value.parameters()},
    ],
    lr=3e-3,
)


@torch.compile(backend="aot_eager", dynamic=False)
def bc_loss(obs, act, ret):
    mu, log_std = agent.actor(obs)
    z = (act - mu) * torch.exp(-log_std)
    nll = (0.5 * z.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1).mean()
    v = agent.value(obs).squeeze(-1)
    return nll + 0.25 * (v - ret).square().mean(), nll


buffer = [rollouts(256)]
for epoch in range(5):
    obs, act, ret = (torch.cat(p) for p in zip(*buffer, strict=True))
    for mb in range(8):
        pick = torch.randint(0, len(obs), (128,))
        loss, nll = bc_loss(obs[pick], act[pick], ret[pick])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 10.0)
        opt.step()
    print(f"epoch {epoch} nll {nll.item():.4f} loss {loss.item():.4f} log_std {agent.actor.dist.log_std.item():+.3f}")
    buffer.append(rollouts(128))
