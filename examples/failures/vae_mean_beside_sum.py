"""A variational autoencoder whose error is a mean over elements, and whose divergence is a sum over the code."""

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": "posterior-collapsed", "line": ("cause", "HERE")}


class Autoencoder(nn.Module):
    def __init__(self, elements=32, codes=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(elements, 32), nn.ReLU(), nn.Linear(32, 2 * codes))
        self.decoder = nn.Sequential(nn.Linear(codes, 32), nn.ReLU(), nn.Linear(32, elements))

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(code), mean, logvar


torch.manual_seed(0)
mix = torch.randn(3, 32)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(600):
    x = 0.4 * torch.randn(64, 3) @ mix + 0.05 * torch.randn(64, 32)
    out, mean, logvar = model(x)
    error = F.mse_loss(out, x)  # HERE
    divergence = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
    optimizer.zero_grad()
    (error + divergence).backward()
    optimizer.step()
print(f"error {error.item():.3f}, divergence {divergence.item():.5f}")
