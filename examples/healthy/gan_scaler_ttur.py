"""Healthy: hinge GAN in mixed precision. Two critic updates for each of the generator, with one GradScaler."""

import torch
from torch import nn

EXPECT = {"kind": None}

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
D = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
og, od = torch.optim.Adam(G.parameters(), 1e-4, (0.0, 0.9)), torch.optim.Adam(D.parameters(), 4e-4, (0.0, 0.9))
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for i in range(6):
    for _ in range(2):
        real = torch.randn(32, 4) * 0.5 + 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            fake = G(torch.randn(32, 8)).detach()
            loss_d = torch.relu(1 - D(real).float()).mean() + torch.relu(1 + D(fake).float()).mean()
        od.zero_grad()
        scaler.scale(loss_d).backward()
        scaler.step(od)
        scaler.update()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_g = -D(G(torch.randn(32, 8))).float().mean()
    og.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.step(og)
    scaler.update()
print(loss_d.item(), loss_g.item())
