"""VAE: exp(logvar) overflows to Inf in the KL term for outliers."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT")}


class VAE(nn.Module):
    def __init__(self, x_dim=12, z_dim=3):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(x_dim, 16), nn.Linear(16, z_dim), nn.Linear(16, z_dim)
        self.dec = nn.Sequential(nn.Linear(z_dim, 16), nn.ReLU(), nn.Linear(16, x_dim))

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        h = torch.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(self.reparameterize(mu, logvar).clamp(-10, 10)), mu, logvar


def loss_fn(recon, x, mu, logvar):
    mse = nn.functional.smooth_l1_loss(recon, x)
    kld = -0.5 * torch.mean(1 + logvar - mu.pow(2) - logvar.exp())  # CULPRIT
    return mse + 1e-3 * kld


if __name__ == "__main__":
    torch.manual_seed(0)
    vae = VAE()
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-3)
    for batch in range(4):
        x = torch.randn(8, 12)
        if batch == 2:
            x[5] *= 700  # sensor glitch
        loss = loss_fn(*(lambda out: (out[0], x, out[1], out[2]))(vae(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print({"reproduced": not loss.isfinite().item()})
