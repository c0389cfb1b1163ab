"""Actor: probabilities go through numpy to the environment, log-prob is rebuilt with torch.tensor."""

import numpy as np
import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2), nn.Softmax(-1))
        self.critic = nn.Linear(4, 1)


def rollout(agent, rng, n=10):
    obs = torch.randn(n, 4)
    probs = agent.actor(obs).detach().numpy()  # CUT
    actions = np.array([rng.choice(2, p=p / p.sum()) for p in probs])
    logp = torch.tensor(np.log(probs[np.arange(n), actions]), requires_grad=True)
    return obs, logp, torch.from_numpy(rng.standard_normal(n).astype(np.float32))


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    agent = Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=1e-2)
    for _ in range(4):
        obs, logp, returns = rollout(agent, rng)
        value = agent.critic(obs).squeeze(1)
        advantage = returns - value
        loss = -(logp * advantage.detach()).mean() + advantage.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": all(p.grad is None for p in agent.actor.parameters())})


if __name__ == "__main__":
    main()
