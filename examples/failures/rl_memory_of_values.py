"""A2C buffer keeps log_prob and value tensors of all episodes; memory.clear() is only called for rewards."""

import torch
from torch import nn
from torch.distributions import Categorical

EXPECT = {"kind": "graph-retained", "line": ("held", "HOLDS")}


class Memory:
    def __init__(self):
        self.logprobs, self.rewards = [], []

    def clear(self):
        del self.rewards[:]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, s):
        return Categorical(logits=self.net(s))


def main():
    torch.manual_seed(0)
    policy, memory = Policy(), Memory()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for episode in range(10):
        for t in range(3):
            dist = policy(torch.randn(4))
            memory.logprobs.append(dist.log_prob(dist.sample()))  # HOLDS
            memory.rewards.append(float(torch.randn(())))
        loss = -(torch.stack(memory.logprobs[-3:]) * torch.tensor(memory.rewards)).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        memory.clear()


if __name__ == "__main__":
    main()
