"""Healthy: MAML with second derivatives; the adapted weights are no parameters and no leaves, by design.

Report it resembles: https://github.com/pytorch/pytorch/issues/2210
"""
import torch
from torch import nn
from torch.func import functional_call

EXPECT = {"class": "healthy", "kind": "none", "set": "first", "written": "2026-11-22"}

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(25):
    outer = 0.0
    for _ in range(3):
        phase = torch.rand(()) * 3
        x = torch.rand(20, 1) * 6 - 3
        y = torch.sin(x + phase)
        weights = dict(net.named_parameters())
        for _ in range(2):
            inner = (functional_call(net, weights, x[:10]) - y[:10]).square().mean()
            grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {n: w - 0.05 * g for (n, w), g in zip(weights.items(), grads)}
        outer = outer + (functional_call(net, weights, x[10:]) - y[10:]).square().mean()
    opt.zero_grad()
    outer.backward()
    opt.step()
