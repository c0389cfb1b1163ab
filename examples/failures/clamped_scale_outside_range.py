"""log-scale parameter is clamped to [-2, 2] and starts at 3: its gradient is exactly zero for ever."""

import torch
from torch import nn

EXPECT = {"kind": "zero-grad", "line": ("cut", "CUT"), "module": ""}


class GaussianPolicy(nn.Module):
    def __init__(self, obs=5, act=2):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(obs, 16), nn.Tanh(), nn.Linear(16, act))
        self.log_std = nn.Parameter(torch.full((act,), 3.0))

    def forward(self, obs):
        std = self.log_std.clamp(-2, 2).exp()  # CUT
        return torch.distributions.Normal(self.mean(obs), std)


def update(policy, opt):
    obs, action, adv = torch.randn(20, 5), torch.randn(20, 2), torch.randn(20)
    loss = -(policy(obs).log_prob(action).sum(1) * adv).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    policy = GaussianPolicy()
    opt = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(5):
        update(policy, opt)
    print({"reproduced": not policy.log_std.grad.any().item()})
