"""Healthy, without any optimizer: a GAN by hand. The generator climbs the critic's loss, its backward adds to the critic's gradients, and these are cleared just before they count."""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
generator = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 2))


def clear(model):
    for p in model.parameters():
        p.grad = None


def move(model, rate):
    with torch.no_grad():
        for p in model.parameters():
            p += rate * p.grad


for step in range(50):
    real, noise = torch.randn(32, 2) * 0.3 + 1, torch.randn(32, 3)
    scores = torch.cat([critic(real), critic(generator(noise).detach())])
    clear(critic)
    F.binary_cross_entropy_with_logits(scores, torch.cat([torch.ones(32, 1), torch.zeros(32, 1)])).backward()
    move(critic, -0.05)
    clear(generator)
    loss = F.binary_cross_entropy_with_logits(critic(generator(noise)), torch.zeros(32, 1))
    loss.backward()
    move(generator, 0.05)
print("fooled", loss.item())
