"""VAE on synthetic spectra, a stream with one badly calibrated detector run."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "posterior",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(5)
NBIN = 64


class Encoder(nn.Module):
    def __init__(self, z):
        super().__init__()
        self.c1 = nn.Conv1d(1, 8, 5, stride=2, padding=2)
        self.c2 = nn.Conv1d(8, 16, 5, stride=2, padding=2)
        self.fc = nn.Linear(16 * (NBIN // 4), 2 * z)

    def forward(self, x):
        h = F.leaky_relu(self.c1(x.unsqueeze(1)), 0.1)
        h = F.leaky_relu(self.c2(h), 0.1)
        return self.fc(h.flatten(1)).chunk(2, dim=-1)


class Posterior(nn.Module):
    def forward(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)  # HERE
        z = mu + std * eps
        kl = 0.5 * (mu.pow(2) + std.pow(2) - 1.0 - logvar).sum(-1)
        return z, kl


class SpectraVAE(nn.Module):
    def __init__(self, z=6):
        super().__init__()
        self.z = z
        self.enc = Encoder(z)
        self.posterior = Posterior()
        self.dec = nn.Sequential(nn.Linear(z, 64), nn.ReLU(), nn.Linear(64, NBIN))

    def forward(self, x, eps):
        mu, logvar = self.enc(x)
        z, kl = self.posterior(mu, logvar, eps)
        rec = F.softplus(self.dec(z))
        return rec, kl


grid = torch.linspace(0, 1, NBIN)


def spectra(n, run):
    c = torch.rand(n, 2, 1) * 0.8 + 0.1
    a = torch.rand(n, 2, 1) + 0.2
    x = (a * torch.exp(-(((grid - c) / 0.05) ** 2))).sum(1) + 0.02 * torch.rand(n, NBIN)
    if run == 15:
        x[: n // 2] *= 2.0e4  # raw ADC counts, somebody forgot the calibration
    return x


vae = SpectraVAE()
fwd = torch.compile(vae, backend=BACKEND)
opt = torch.optim.Adam(vae.parameters(), lr=1e-3)
beta = 0.0
for run in range(24):
    x = spectra(32, run)
    rec, kl = fwd(x, torch.randn(32, vae.z))
    beta = min(0.05, beta + 0.004)
    loss = F.mse_loss(rec, x, reduction="none").sum(-1).mean() + beta * kl.mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(vae.parameters(), 0.5)
    opt.step()
    print("run %d elbo %.4f kl %.3f" % (run, loss.item(), kl.mean().item()))
