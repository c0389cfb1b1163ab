"""VAE-GAN: optim_VAE.step() runs before D_loss.backward(), which needs the old encoder weights."""

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES")}


class Factor(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), nn.Linear(3, 8)

    def forward(self, x):
        z = self.encode(x)
        return self.decode(z), z


def permute(z):
    return torch.stack([column[torch.randperm(len(z))] for column in z.unbind(1)], 1)


class Solver:
    def __init__(self):
        self.vae, self.D = Factor(), nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 2))
        self.optim_vae = torch.optim.Adam(self.vae.parameters(), lr=1e-3)
        self.optim_d = torch.optim.Adam(self.D.parameters(), lr=1e-3)

    def train(self, steps=2):
        for _ in range(steps):
            x = torch.randn(10, 8)
            recon, z = self.vae(x)
            d_z = self.D(z)
            vae_loss = F.mse_loss(recon, x) + (d_z[:, :1] - d_z[:, 1:]).mean()
            self.optim_vae.zero_grad()
            vae_loss.backward(retain_graph=True)
            self.optim_vae.step()  # MUTATES
            zeros, ones = torch.zeros(10, dtype=torch.long), torch.ones(10, dtype=torch.long)
            d_loss = 0.5 * (F.cross_entropy(d_z, zeros) + F.cross_entropy(self.D(permute(z).detach()), ones))
            self.optim_d.zero_grad()
            d_loss.backward()
            self.optim_d.step()


torch.manual_seed(0)
Solver().train()
