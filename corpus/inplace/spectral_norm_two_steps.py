"""Spectral norm: the loss is walked twice with retain_graph, a step of the first optimizer lies between.

Report: https://github.com/pytorch/pytorch/issues/55368
"""
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

EXPECT = {"class": "inplace", "kind": "inplace", "mutating_marker": "MUTATES", "set": "first", "written": "2026-11-22"}

torch.manual_seed(0)
G, D = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), nn.Sequential(spectral_norm(nn.Linear(3, 8)), nn.ReLU(), spectral_norm(nn.Linear(8, 1)))
opt_g, opt_d = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(D.parameters(), 1e-3)
for step in range(30):
    fake, real = G(torch.randn(8, 4)), torch.randn(8, 3)
    score = D(fake)
    loss_d = score.mean() - D(real).mean()
    loss_g = -score.mean()
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)
    if step < 20:
        opt_g.zero_grad()
        loss_g.backward()
        opt_d.step()
    else:  # "reuse the forward": the order was changed
        opt_d.step()  # MUTATES
        opt_g.zero_grad()
        loss_g.backward()
    opt_g.step()
