"""WGAN with a gradient penalty by autograd.grad: the norm is written out, and once a sample is dropped from both batches the critic, which has no bias, is flat there."""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 402,
    "set": "late_again", "written": "2026-11-22",
}

torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 24, bias=False), nn.ReLU(), nn.Linear(24, 1, bias=False))
opt_g, opt_c = torch.optim.Adam(gen.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)


def penalty(real, fake):
    t = torch.rand(len(real), 1)
    mixed = (t * real + (1 - t) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    length = slope.square().sum(1).sqrt()  # CULPRIT
    return (length - 1).square().mean()


for update in range(430):
    real = torch.randn(12, 2) * torch.tensor([1.0, 0.3])
    fake = gen(torch.randn(12, 3)).detach()
    if update == 402:
        keep = torch.ones(12, 1)
        keep[5] = 0
        real, fake = real * keep, fake * keep
    cost = critic(fake).mean() - critic(real).mean() + 2 * penalty(real, fake)
    opt_c.zero_grad()
    cost.backward()
    opt_c.step()
    if update % 4 == 3:
        loss = -critic(gen(torch.randn(12, 3))).mean()
        opt_g.zero_grad()
        loss.backward()
        opt_g.step()
    if update % 80 == 0:
        print(update, round(cost.item(), 4))
