"""PPO on a little "stop at the goal" task with episodes of different length.

Story: rollouts are collected until a budget is reached, cut into minibatches, advantages are
normalised per minibatch.  After some updates the policy suddenly emits invalid actions.
Based on public reports: DLR-RM/stable-baselines3#325 (fixed by #1028) and jolibrain/wheatley#93:
the last minibatch of an update can have a single transition.
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import Categorical

EXPECT = {
    "class": "x", "kind": "nonfinite-forward-poisons-backward", "source_marker": "SRC", "plain": {"outcome": "error", "error": "Expected parameter"},
    "set": "fourteenth", "written": "2026-11-26",
}


@dataclass
class PPOConfig:
    updates: int = 60
    budget: int = 220
    minibatch: int = 32
    epochs: int = 3
    clip: float = 0.2
    gamma: float = 0.97
    lr: float = 3e-3
    seed: int = 11


class ReachEnv:
    """A cart on a line; pushes left, none, right.  The episode ends at rest near zero."""

    def __init__(self, generator):
        self.g = generator

    def reset(self):
        self.pos = float(torch.rand((), generator=self.g)) * 4 - 2
        self.vel, self.t = 0.0, 0
        return self.observe()

    def observe(self):
        return torch.tensor([self.pos, self.vel])

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.12 * (action - 1)
        self.pos = max(-3.0, min(3.0, self.pos + self.vel))
        self.t += 1
        reached = abs(self.pos) < 0.15
        return self.observe(), (5.0 if reached else -0.1 - 0.2 * abs(self.pos)), reached or self.t >= 50


class ActorCritic(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, 3)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


@torch.no_grad()
def rollout(env, model, cfg):
    obs, act, logp, ret = [], [], [], []
    while len(obs) < cfg.budget:
        o, done, rewards = env.reset(), False, []
        while not done:
            dist, _ = model(o)
            a = dist.sample()
            obs.append(o), act.append(a), logp.append(dist.log_prob(a))
            o, r, done = env.step(int(a))
            rewards.append(r)
        running, tail = 0.0, []
        for r in reversed(rewards):
            running = r + cfg.gamma * running
            tail.append(running)
        ret.extend(reversed(tail))
    obs, ret = torch.stack(obs), torch.tensor(ret)
    _, value = model(obs)
    return obs, torch.stack(act), torch.stack(logp), ret, ret - value


def ppo_loss(model, cfg, obs, act, old_logp, ret, adv):
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)  # SRC
    dist, value = model(obs)
    ratio = (dist.log_prob(act) - old_logp).exp()
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv)
    return -surrogate.mean() + 0.5 * (value - ret).pow(2).mean() - 0.01 * dist.entropy().mean()


def main():
    cfg = PPOConfig()
    torch.manual_seed(cfg.seed)
    env = ReachEnv(torch.Generator().manual_seed(1))
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for update in range(cfg.updates):
        batch = rollout(env, model, cfg)
        for _ in range(cfg.epochs):
            for index in torch.randperm(len(batch[0])).split(cfg.minibatch):
                loss = ppo_loss(model, cfg, *(field[index] for field in batch))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        print(f"update {update:3d} transitions {len(batch[0])} mean return {batch[3].mean():.3f}")


if __name__ == "__main__":
    main()
