"""Continuous control of room heating with an off-policy actor and critic.

Report: https://github.com/thu-ml/tianshou/issues/37
"""
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "inplace",
    "line": ("mutated", "STEP"),
    "plain": "critic warm-up runs, then RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}


class Room:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.outside = self.rng.uniform(-1, 1)
        self.wish = self.rng.uniform(0.0, 1.0)
        self.inside = self.rng.uniform(-0.5, 1.0)
        return self.observe()

    def observe(self):
        return np.array([self.inside, self.outside, self.wish], dtype=np.float32)

    def step(self, heat):
        self.inside += 0.15 * (self.outside - self.inside) + 0.4 * float(heat) + self.rng.normal(scale=0.01)
        self.outside = float(np.clip(self.outside + self.rng.normal(scale=0.05), -1, 1))
        reward = -abs(self.inside - self.wish) - 0.02 * abs(float(heat))
        return self.observe(), reward


def mlp(n_in, n_out, width=64):
    return nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_out))


class Agent:
    def __init__(self, n_obs=3, warm_up=1000, gamma=0.9, tau=0.02):
        self.actor = nn.Sequential(mlp(n_obs, 1), nn.Tanh())
        self.critic = mlp(n_obs + 1, 1)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=2e-3)
        self.warm_up, self.gamma, self.tau = warm_up, gamma, tau
        self.updates = 0

    def q(self, net, obs, act):
        return net(torch.cat([obs, act], dim=-1)).squeeze(-1)

    def learn(self, obs, act, rew, nxt):
        with torch.no_grad():
            goal = rew + self.gamma * self.q(self.target, nxt, self.actor(nxt))
        critic_loss = F.mse_loss(self.q(self.critic, obs, act), goal)
        actor_loss = -self.q(self.critic, obs, self.actor(obs)).mean()

        self.critic_opt.zero_grad()
        critic_loss.backward(inputs=list(self.critic.parameters()))
        self.critic_opt.step()  # STEP
        if self.updates >= self.warm_up:
            self.actor_opt.zero_grad()
            actor_loss.backward(inputs=list(self.actor.parameters()))
            self.actor_opt.step()

        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters()):
                slow.lerp_(fast, self.tau)
        self.updates += 1
        return critic_loss.item(), actor_loss.item()


class Memory:
    def __init__(self, seed):
        self.rows = []
        self.rng = np.random.default_rng(seed)

    def add(self, *row):
        self.rows.append(row)

    def sample(self, n):
        picks = [self.rows[i] for i in self.rng.integers(len(self.rows), size=n)]
        obs, act, rew, nxt = (np.array(part, dtype=np.float32) for part in zip(*picks))
        return torch.from_numpy(obs), torch.from_numpy(act).unsqueeze(-1), torch.from_numpy(rew), torch.from_numpy(nxt)


def main():
    torch.manual_seed(0)
    room, memory, agent = Room(0), Memory(1), Agent()
    noise = np.random.default_rng(2)
    for episode in range(60):
        obs, total = room.reset(), 0.0
        for _ in range(40):
            with torch.no_grad():
                heat = agent.actor(torch.from_numpy(obs)).item()
            heat = float(np.clip(heat + noise.normal(scale=0.3), -1, 1))
            nxt, reward = room.step(heat)
            memory.add(obs, heat, reward, nxt)
            obs, total = nxt, total + reward
            if len(memory.rows) >= 200:
                critic_loss, actor_loss = agent.learn(*memory.sample(64))
        if len(memory.rows) > 200 and episode % 2 == 0:
            print(f"episode {episode:2d}  updates {agent.updates:4d}  critic {critic_loss:.4f}  actor {actor_loss:.4f}  return {total:.2f}")


if __name__ == "__main__":
    main()
