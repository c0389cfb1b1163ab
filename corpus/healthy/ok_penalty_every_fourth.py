"""Healthy: Wasserstein GAN on points with a gradient penalty every fourth step; the penalty is differentiated twice, a distance of zero is guarded before its root, the generator's graph is walked once.

Report it resembles: https://github.com/rosinality/stylegan2-pytorch/issues/179 (what the penalty is computed on)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "seventh", "written": "2026-11-22"}


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.Softplus(), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, outputs))


def gradient_penalty(critic, real, fake):
    share = torch.rand(len(real), 1)
    mixed = (share * real + (1 - share) * fake).requires_grad_()
    grad, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    length = (grad.square().sum(1) + 1e-12).sqrt()
    return (length - 1).square().mean()


def ring(n):
    angle = 6.2832 * torch.rand(n)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


torch.manual_seed(0)
critic, generator = network(2, 1), network(4, 2)
c_opt, g_opt = (torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.0, 0.9)) for m in (critic, generator))
for step in range(240):
    real, fake = ring(32), generator(torch.randn(32, 4))
    c_loss = critic(fake.detach()).mean() - critic(real).mean()
    if step % 4 == 3:
        c_loss = c_loss + 4 * gradient_penalty(critic, real, fake.detach())
    c_opt.zero_grad()
    c_loss.backward()
    c_opt.step()
    if step % 3 == 2:
        critic.requires_grad_(False)
        g_loss = -critic(fake).mean()
        g_opt.zero_grad()
        g_loss.backward()
        g_opt.step()
        critic.requires_grad_(True)
    if step % 30 == 0:
        print(step, c_loss.item())
