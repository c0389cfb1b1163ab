"""Discriminator with spectral norm whose blocks are checkpointed: the recomputation does another power iteration and moves the stored vectors a second time.

Report: https://github.com/pytorch/pytorch/pull/62293 (vectors that change with every forward), checkpointing as in pytorch/pytorch issue 96136
"""
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "checkpoint", "kind": "checkpoint-side-effect", "region_marker": "REGION",
    "set": "third", "written": "2026-11-22",
}


class Discriminator(nn.Module):
    def __init__(self, width=16, depth=2):
        super().__init__()
        self.stem = nn.Linear(8, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(spectral_norm(nn.Linear(width, width)), nn.LeakyReLU(0.2)) for _ in range(depth)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = nn.functional.leaky_relu(self.stem(x), 0.2)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False)  # REGION
        return self.out(h)


torch.manual_seed(0)
critic = Discriminator()
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
opt_d = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.0, 0.9))
opt_g = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.0, 0.9))
for step in range(25):
    real, noise = torch.randn(8, 8) + 1, torch.randn(8, 4)
    with torch.no_grad():
        fake = generator(noise)
    d_loss = (1 - critic(real)).relu().mean() + (1 + critic(fake)).relu().mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = -critic(generator(noise)).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
vectors = critic.blocks[0][0].parametrizations.weight[0]._u
before = vectors.clone()
d_loss = critic(real).mean()
between = vectors.clone()
d_loss.backward()
print("reproduced", (between - before).norm().item(), (vectors - between).norm().item())
