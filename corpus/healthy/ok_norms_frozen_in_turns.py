"""A GAN whose discriminator has BatchNorm: its requires_grad is off while the generator is trained, and on in between. Its
running statistics move in both phases, as they should."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(6)
torch.set_num_threads(1)
G = nn.Sequential(nn.Linear(4, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 2))
D = nn.Sequential(nn.Linear(2, 24), nn.BatchNorm1d(24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
g_optimizer = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
d_optimizer = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))
for step in range(150):
    angle = 6.28 * torch.rand(48, 1)
    real = 3 * torch.cat([angle.cos(), angle.sin()], 1)
    D.requires_grad_(True)
    fake = G(torch.randn(48, 4)).detach()
    d_loss = F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()
    d_optimizer.zero_grad()
    d_loss.backward()
    d_optimizer.step()
    D.requires_grad_(False)
    g_loss = F.softplus(-D(G(torch.randn(48, 4)))).mean()
    g_optimizer.zero_grad()
    g_loss.backward()
    g_optimizer.step()
print(f"D {d_loss.item():.3f}  G {g_loss.item():.3f}")
