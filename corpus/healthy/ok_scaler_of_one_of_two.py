"""Healthy: a GAN in which only the generator's loss is scaled; the critic steps by itself, and a third optimizer gets
gradients that the loop divides by the factor before it steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
torch.set_num_threads(1)
maker, critic = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 2)), nn.Sequential(nn.Linear(2, 16), nn.GELU(), nn.Linear(16, 1))
shift = nn.Parameter(torch.zeros(2))
makers = torch.optim.Adam(maker.parameters(), lr=1e-3)
critics = torch.optim.Adam(critic.parameters(), lr=1e-3)
shifts = torch.optim.SGD([shift], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(120):
    real = torch.randn(32, 2) * 0.5 + 1
    fake = maker(torch.randn(32, 4)) + shift
    loss = F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean()
    critics.zero_grad()
    loss.backward()
    critics.step()
    makers.zero_grad()
    shifts.zero_grad()
    scaler.scale(F.softplus(-critic(fake)).mean()).backward()
    shift.grad /= scaler.get_scale()
    shifts.step()
    scaler.step(makers)
    scaler.update()
