"""Opening the vents of a greenhouse: a Gaussian policy trained by the score-function estimator.

Follows the question https://stackoverflow.com/questions/70163823/how-does-a-gradient-backpropagates-through-random-samples
(the threads on it end with: sample for the score function, rsample only where the reward is differentiated)
"""
import math

import torch
from torch import nn
from torch.distributions import Normal

EXPECT = {
    "kind": "zero-grad",
    "line": ("cut", "cause"),
    "plain": "the reward hardly rises however long it trains; only the spread of the policy changes",
    "set": "twentyfourth",
    "written": "2026-11-28",
}


class Greenhouse:
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)

    def weather(self, n):
        sun = torch.rand(n, generator=self.random)
        wind = torch.rand(n, generator=self.random)
        outside = torch.randn(n, generator=self.random) * 0.5
        return torch.stack([sun, wind, outside], dim=1)

    def reward(self, state, opening):
        sun, wind, outside = state.unbind(1)
        best = 1.6 * sun - 0.9 * wind * sun + 0.7 * outside - 0.3
        return -(opening - best) ** 2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.tensor(math.log(0.5)))

    def forward(self, state):
        return Normal(self.mean(state).squeeze(1), self.log_std.clamp(-2.5, 1.0).exp())


class Baseline:
    def __init__(self):
        self.value = None

    def advantage(self, reward):
        average = reward.mean().item()
        self.value = average if self.value is None else 0.9 * self.value + 0.1 * average
        return reward - self.value


def update(policy, optimizer, house, baseline, batch):
    state = house.weather(batch)
    dist = policy(state)
    opening = dist.rsample()  # <-- cause
    reward = house.reward(state, opening.detach())
    advantage = baseline.advantage(reward)
    loss = -(dist.log_prob(opening) * advantage).mean()  # <-- cause
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item(), reward.mean().item()


@torch.no_grad()
def evaluate(policy):
    house = Greenhouse(seed=99)
    state = house.weather(2000)
    return house.reward(state, policy(state).mean).mean().item()


def main():
    torch.manual_seed(10)
    torch.set_num_threads(1)
    house, policy, baseline = Greenhouse(seed=10), Policy(), Baseline()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    print(f"before: reward {evaluate(policy):.4f}")
    losses, rewards = [], []
    for step in range(1000):
        loss, reward = update(policy, optimizer, house, baseline, batch=128)
        losses.append(loss)
        rewards.append(reward)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {sum(losses[-100:]) / 100:+.4f}  reward {sum(rewards[-100:]) / 100:.4f}  "
                  f"spread {policy.log_std.exp().item():.3f}")
    print(f"after: reward {evaluate(policy):.4f}")


if __name__ == "__main__":
    main()
