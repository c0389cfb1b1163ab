"""A metrics helper from utils clamps the probabilities in place before the log."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES")}


def entropy(p, eps=1e-7):
    p.clamp_(min=eps)  # MUTATES
    return -(p * p.log()).sum(-1).mean()


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3), nn.Softmax(-1))

    def forward(self, obs):
        return self.net(obs)  # SAVES


def update(policy, opt, obs, action, advantage):
    probs = policy(obs)
    logp = torch.log(probs.gather(1, action[:, None]).squeeze(1) + 1e-8)
    loss = -(logp * advantage).mean() - 0.01 * entropy(probs)
    opt.zero_grad()
    loss.backward()
    opt.step()


torch.manual_seed(0)
policy = Policy()
opt = torch.optim.Adam(policy.parameters())
for _ in range(3):
    update(policy, opt, torch.randn(16, 4), torch.randint(0, 3, (16,)), torch.randn(16))
