"""Policy gradient over rollouts: the fast simulator returns the same NumPy array in every step, torch.from_numpy shares it and each step overwrites what earlier ones saved.

Report: https://github.com/hill-a/stable-baselines/issues/550 (whether the copy of the observation is needed)
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES",
    "set": "third", "written": "2026-11-22",
}


class Simulator:
    def __init__(self, envs, seed):
        self.rng = np.random.default_rng(seed)
        self.obs = self.rng.normal(size=(envs, 4)).astype(np.float32)

    def observe(self):
        return self.obs.copy()

    def step(self, action):
        push = np.where(action == 1, 0.1, -0.1).astype(np.float32)
        self.obs[:, :2] += push[:, None]  # MUTATES
        self.obs += self.rng.normal(scale=0.05, size=self.obs.shape).astype(np.float32)  # MUTATES
        return self.observe(), -np.abs(self.obs[:, 0])


class FastSimulator(Simulator):
    def observe(self):
        return self.obs


torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
opt = torch.optim.Adam(policy.parameters(), 3e-3)
sim = Simulator(8, seed=1)
for update in range(60):
    if update == 25:  # the long phase
        sim = FastSimulator(8, seed=2)
    obs = sim.observe()
    logps, rewards = [], []
    for t in range(6):
        dist = torch.distributions.Categorical(logits=policy(torch.from_numpy(obs)))
        action = dist.sample()
        logps.append(dist.log_prob(action))
        obs, reward = sim.step(action.numpy())
        rewards.append(torch.from_numpy(reward))
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    loss = -(torch.stack(logps) * (returns - returns.mean())).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("last loss", loss.item())
