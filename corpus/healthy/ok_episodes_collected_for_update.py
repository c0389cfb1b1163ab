"""Healthy: policy gradient that updates after ten episodes; the log-probabilities keep their graphs until then, on purpose, and are let go afterwards.

Report it resembles: https://github.com/pytorch/examples/issues/151 (which lists of an episode have to be emptied)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "seventh", "written": "2026-11-22"}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 2))

    def act(self, state):
        choice = torch.distributions.Categorical(logits=self.net(state))
        action = choice.sample()
        return action.item(), choice.log_prob(action)


class Agent:
    def __init__(self, every=10):
        self.policy, self.every, self.episodes, self.average = Policy(), every, [], 0.0
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-2)

    def play(self, length=6):
        position, log_probs, total = torch.randn(3), [], 0.0
        for _ in range(length):
            action, log_prob = self.policy.act(position)
            total += 1.0 if (action == 1) == (position[0] > 0) else 0.0
            log_probs.append(log_prob)
            position = 0.5 * position + torch.randn(3)
        self.episodes.append((torch.stack(log_probs), total))
        return total

    def update(self):
        self.optimizer.zero_grad()
        loss = sum(-(total - self.average) * log_probs.sum() for log_probs, total in self.episodes) / len(self.episodes)
        loss.backward()
        self.optimizer.step()
        self.average = 0.9 * self.average + 0.1 * sum(t for _, t in self.episodes) / len(self.episodes)
        self.episodes.clear()


torch.manual_seed(0)
agent = Agent()
for episode in range(300):
    total = agent.play()
    if episode % agent.every == agent.every - 1:
        agent.update()
    if episode % 50 == 0:
        print(episode, total, agent.average)
