"""A gradient penalty through a compiled critic, which has no second derivative."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "backward-error",
    "line": ("cause", "HERE"),
    "says": ["second derivative", "uncompiled"],
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x)


def penalty(critic, real, fake):
    mixed = (real + fake).div(2).requires_grad_()
    score = critic(mixed)  # HERE
    (slope,) = torch.autograd.grad(score.sum(), mixed, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


torch.manual_seed(0)
net = Critic()
critic = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters())
for _step in range(4):
    real, fake = torch.randn(8, 4), torch.rand(8, 4)
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(critic, real, fake)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
