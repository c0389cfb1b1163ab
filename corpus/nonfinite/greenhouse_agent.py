"""Policy gradient for a greenhouse valve: keep the soil moist for up to 30 hours, a burst pipe ends the episode at once.

Report: https://github.com/MorvanZhou/Reinforcement-learning-with-tensorflow/issues/99
"""
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "plain": "training improves for some hundred episodes, then a ValueError from Categorical says that the logits are nan",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

HOURS = 30


class Greenhouse:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.moisture = self.rng.uniform(0.35, 0.65)
        self.sun = self.rng.uniform(0, 1)
        self.hour = 0
        return self.view()

    def view(self):
        phase = 2 * np.pi * self.hour / 24
        return torch.tensor([self.moisture, self.sun, np.sin(phase), np.cos(phase)], dtype=torch.float32)

    def step(self, valve):
        drying = 0.03 + 0.07 * self.sun
        self.moisture += (0.0, 0.06, 0.14)[valve] - drying + 0.01 * self.rng.standard_normal()
        self.sun = float(np.clip(self.sun + 0.1 * self.rng.standard_normal(), 0, 1))
        self.hour += 1
        burst = self.rng.uniform() < 0.004
        done = burst or self.hour >= HOURS or not 0.1 < self.moisture < 0.9
        reward = 1.0 - 4.0 * abs(self.moisture - 0.5)
        return self.view(), reward, done


class Valve(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 3))

    def forward(self, view):
        return Categorical(logits=self.net(view))


def discounted(rewards, gamma=0.95):
    out, total = [], 0.0
    for r in reversed(rewards):
        total = r + gamma * total
        out.append(total)
    return torch.tensor(out[::-1], dtype=torch.float32)


def play(env, policy):
    view, done = env.reset(), False
    logps, rewards = [], []
    while not done:
        choice = policy(view)
        action = choice.sample()
        view, reward, done = env.step(int(action))
        logps.append(choice.log_prob(action))
        rewards.append(reward)
    return torch.stack(logps), rewards


def main():
    torch.manual_seed(2)
    env = Greenhouse(seed=5)
    policy = Valve()
    optimizer = torch.optim.Adam(policy.parameters(), lr=4e-3)
    recent = []
    for episode in range(1200):
        logps, rewards = play(env, policy)
        returns = discounted(rewards)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)  # HERE
        loss = -(logps * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(sum(rewards))
        if episode % 50 == 49:
            print(f"episode {episode + 1} reward of the last 50: {np.mean(recent[-50:]):.2f}", flush=True)


if __name__ == "__main__":
    main()
