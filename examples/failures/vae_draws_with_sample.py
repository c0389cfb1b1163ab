"""A variational autoencoder draws its code with sample(): the encoder is trained by the divergence alone."""

import torch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

EXPECT = {"kind": "sample-without-gradient", "line": ("cut", "DRAWN")}


class Autoencoder(nn.Module):
    def __init__(self, elements=32, codes=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(elements, 32), nn.ReLU(), nn.Linear(32, 2 * codes))
        self.decoder = nn.Sequential(nn.Linear(codes, 32), nn.ReLU(), nn.Linear(32, elements))

    def forward(self, x):
        mean, scale = self.encoder(x).chunk(2, 1)
        posterior = Independent(Normal(mean, nn.functional.softplus(scale) + 1e-4), 1)
        return self.decoder(posterior.sample()), posterior  # DRAWN


torch.manual_seed(0)
mix = torch.randn(3, 32)
prior = Independent(Normal(torch.zeros(4), torch.ones(4)), 1)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(300):
    x = 0.4 * torch.randn(64, 3) @ mix + 0.05 * torch.randn(64, 32)
    out, posterior = model(x)
    error = (out - x).square().sum(1).mean()
    divergence = kl_divergence(posterior, prior).mean()
    optimizer.zero_grad()
    (error + divergence).backward()
    optimizer.step()
print(f"error {error.item():.3f}, divergence {divergence.item():.5f}")
