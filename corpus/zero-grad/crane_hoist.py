"""A crane hoist, by policy gradient. The pull is drawn with rsample() and keeps its graph, so the gradient of its log-probability with respect to the mean is zero (DLR-RM/stable-baselines3 issue 2096)."""
import torch
from torch import nn
from torch.distributions import Normal

EXPECT = {
    "class": "log-probability of a sample with its graph", "framework": "plain", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "twentyeighth", "written": "2026-11-29",
}


class Hoist:
    """A load on a rope; the motor pulls, the load should hang at the wanted height."""

    def __init__(self, lanes, seed):
        self.lanes = lanes
        self.g = torch.Generator().manual_seed(seed)

    def reset(self):
        self.height = torch.rand(self.lanes, generator=self.g) * 2 - 1
        self.speed = torch.zeros(self.lanes)
        self.goal = torch.rand(self.lanes, generator=self.g) * 2 - 1
        return self.observe()

    def observe(self):
        return torch.stack([self.height - self.goal, self.speed, self.goal], 1)

    def step(self, pull):
        pull = pull.clamp(-2, 2)
        self.speed = 0.8 * self.speed + 0.25 * pull - 0.05
        self.height = self.height + 0.5 * self.speed
        reward = -(self.height - self.goal).abs() - 0.01 * pull.pow(2)
        return self.observe(), reward


class Operator(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.5))

    def forward(self, obs):
        mean = self.mean(obs).squeeze(-1)
        return Normal(mean, self.log_std.clamp(-1.5, 0.5).exp().expand_as(mean))


def rollout(env, policy, horizon):
    obs = env.reset()
    scores, rewards = [], []
    for _ in range(horizon):
        dist = policy(obs)
        pull = dist.rsample()  # HERE
        scores.append(dist.log_prob(pull))
        obs, reward = env.step(pull.detach())
        rewards.append(reward)
    return torch.stack(scores), torch.stack(rewards)


def discounted(rewards, gamma):
    total = torch.zeros_like(rewards[0])
    out = []
    for r in reversed(rewards):
        total = r + gamma * total
        out.append(total)
    return torch.stack(out[::-1])


@torch.no_grad()
def appraise(policy, lanes=400, horizon=20):
    env = Hoist(lanes, seed=77)
    obs = env.reset()
    total = torch.zeros(lanes)
    for _ in range(horizon):
        obs, reward = env.step(policy(obs).mean)
        total += reward
    return total.mean().item()


def main():
    torch.manual_seed(3)
    env = Hoist(lanes=64, seed=5)
    policy = Operator()
    opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
    print(f"before  return {appraise(policy):.2f}")
    for it in range(300):
        scores, rewards = rollout(env, policy, horizon=20)
        returns = discounted(rewards, gamma=0.9)
        advantage = returns - returns.mean(1, keepdim=True)
        advantage = advantage / (advantage.std() + 1e-6)
        loss = -(scores * advantage).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 50 == 49:
            print(f"round {it + 1:3d}  return {appraise(policy):.2f}  spread {policy.log_std.exp().item():.2f}")
    print(f"after   return {appraise(policy):.2f}")


if __name__ == "__main__":
    main()
