"""Value learning with a head in PopArt style: after a warm-up the mean and spread of returns are followed, and they are brought up to date between the forward and the backward pass, although backward needs the spread of the forward.

Report: https://github.com/leggedrobotics/rsl_rl/pull/225 (statistics of the normalizers have to stay fixed throughout an optimization, and be updated after it)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 50,
    "set": "tenth", "written": "2026-11-23",
}


class PopArt(nn.Module):
    """Linear layer whose outputs are those of a normalised target, put back to the scale of returns."""

    def __init__(self, inputs, rate=0.05):
        super().__init__()
        self.linear, self.rate = nn.Linear(inputs, 1), rate
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("std", torch.ones(1))

    def forward(self, h):
        return self.linear(h) * self.std + self.mean

    @torch.no_grad()
    def follow(self, returns):
        old_mean, old_std = self.mean.clone(), self.std.clone()
        self.mean.lerp_(returns.mean(0), self.rate)
        self.std.lerp_(returns.std(0).clamp(min=1e-3), self.rate)  # MUTATES
        return old_mean, old_std

    @torch.no_grad()
    def preserve(self, old_mean, old_std):
        self.linear.weight.mul_(old_std / self.std)
        self.linear.bias.mul_(old_std).add_(old_mean - self.mean).div_(self.std)


class Critic(nn.Module):
    def __init__(self, inputs=6, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.ELU(), nn.Linear(width, width), nn.ELU())
        self.value = PopArt(width)

    def forward(self, x):
        return self.value(self.body(x))


class Games:
    """States and the returns that came of them; games get larger in time."""

    def __init__(self):
        self.taste = torch.randn(6, 1)

    def batch(self, n, size):
        x = torch.randn(n, 6)
        return x, size * (torch.tanh(x @ self.taste) + 0.5 + 0.1 * torch.randn(n, 1))


torch.manual_seed(0)
games, critic = Games(), Critic()
optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
for step in range(100):
    x, returns = games.batch(64, size=1 + step / 10)
    value = critic(x)
    loss = nn.functional.smooth_l1_loss(value, returns)
    if step >= 50:
        before = critic.value.follow(returns)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step >= 50:
        critic.value.preserve(*before)
    if step % 10 == 0:
        print(step, loss.item())
