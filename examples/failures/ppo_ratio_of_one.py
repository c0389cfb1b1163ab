"""PPO computes the old log-probabilities anew in each update, with a graph: the ratio is always 1 and trains nothing."""

import torch
from torch import nn
from torch.distributions import Categorical

EXPECT = {"kind": "gradient-cancels", "line": ("cause", "COMPUTED AGAIN")}


class Gridworld:
    def __init__(self, size=5):
        self.size = size

    def states(self, n):
        return torch.randint(0, self.size, (n, 2)).float() / self.size

    def reward(self, states, actions):
        best = (states[:, 0] > states[:, 1]).long() + 2 * (states.sum(1) > 1).long()
        return (actions == best).float()


def main():
    torch.manual_seed(0)
    world = Gridworld()
    policy = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for iteration in range(10):
        states = world.states(256)
        with torch.no_grad():
            actions = Categorical(logits=policy(states)).sample()
        rewards = world.reward(states, actions)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-8)
        for epoch in range(4):
            dist = Categorical(logits=policy(states))
            old_log_probs = Categorical(logits=policy(states)).log_prob(actions)  # COMPUTED AGAIN
            ratio = torch.exp(dist.log_prob(actions) - old_log_probs)
            gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
            loss = -gain.mean() - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"iteration {iteration}: reward {rewards.mean():.3f}")


if __name__ == "__main__":
    main()
