"""Healthy: differentially private training with gradients per sample from torch.func; the parameters are no part of any backward, their gradients are written by hand.

Report it resembles: https://github.com/pytorch/functorch/issues/1122 (also pytorch/functorch issue 372)
"""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

EXPECT = {"class": "healthy", "framework": "torch.func", "kind": "none", "set": "third", "written": "2026-11-22"}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
opt = torch.optim.SGD(model.parameters(), 5e-2, momentum=0.9)
max_norm, noise_multiplier = 1.0, 0.3


def sample_loss(params, x, y):
    return nn.functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])


per_sample = vmap(grad(sample_loss), in_dims=(None, 0, 0))
for step in range(40):
    x = torch.randn(16, 6)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    params = {name: p.detach() for name, p in model.named_parameters()}
    grads = per_sample(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    factor = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    opt.zero_grad()
    for name, p in model.named_parameters():
        g = torch.einsum("b...,b->...", grads[name], factor)
        p.grad = (g + noise_multiplier * max_norm * torch.randn_like(g)) / len(x)
    opt.step()
    if step % 10 == 0:
        with torch.no_grad():
            print(step, nn.functional.cross_entropy(model(x), y).item())
