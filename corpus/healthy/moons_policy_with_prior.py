"""A policy that is kept near a prior: actions are drawn with sample(), and the log-probability carries the gradient. A critic
gets the actions as inputs, and one loss trains both."""
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29", "what": "a score-function estimator beside a divergence"}


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.mean, self.log_scale = nn.Linear(32, 2), nn.Parameter(torch.full((2,), -0.7))
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, point):
        return Normal(self.mean(self.body(point)), self.log_scale.exp().expand(len(point), 2))


def main():
    torch.manual_seed(0)
    points = torch.tensor(make_moons(512, noise=0.05, random_state=0)[0], dtype=torch.float32)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=5e-3)
    for step in range(150):
        point = points[torch.randint(len(points), (64,))]
        policy = agent(point)
        action = policy.sample()
        reward = -(action - point.flip(1)).square().sum(1)
        value = agent.critic(torch.cat([point, action], 1)).squeeze(1)
        log_prob = policy.log_prob(action).sum(1)
        advantage = reward - reward.mean()
        loss = -(log_prob * advantage).mean() + F.mse_loss(value, reward)
        loss = loss + 1e-3 * kl_divergence(policy, Normal(0.0, 1.0)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1} reward {reward.mean().item():.3f}")


if __name__ == "__main__":
    main()
