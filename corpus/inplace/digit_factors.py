"""Factors of variation in digit images: a VAE first, then with a discriminator on the codes that estimates their total correlation.

After https://github.com/1Konny/FactorVAE/issues/15 (error in training).
"""
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "inplace",
    "line": ("mutated", "STEP"),
    "plain": "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation, when the second phase begins",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}


class VAE(nn.Module):
    def __init__(self, codes=8, width=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2 * codes))
        self.decoder = nn.Sequential(nn.Linear(codes, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(z), mean, logvar, z


class Discriminator(nn.Module):
    def __init__(self, codes=8, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(codes, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
                                 nn.Linear(width, 2))

    def forward(self, z):
        return self.net(z)


def permute(z, gen):
    return torch.stack([column[torch.randperm(len(z), generator=gen)] for column in z.T], dim=1)


def vae_terms(rebuilt, x, mean, logvar):
    recon = F.binary_cross_entropy_with_logits(rebuilt, x, reduction="sum") / len(x)
    kld = 0.5 * (mean.pow(2) + logvar.exp() - 1 - logvar).sum(dim=1).mean()
    return recon, kld


class Solver:
    def __init__(self, gamma=6.0, warm=6):
        self.vae, self.disc = VAE(), Discriminator()
        self.opt_vae = torch.optim.Adam(self.vae.parameters(), lr=1e-3)
        self.opt_disc = torch.optim.Adam(self.disc.parameters(), lr=1e-4, betas=(0.5, 0.9))
        self.gamma, self.warm = gamma, warm
        self.gen = torch.Generator().manual_seed(9)

    def plain_step(self, x):
        rebuilt, mean, logvar, _ = self.vae(x)
        recon, kld = vae_terms(rebuilt, x, mean, logvar)
        self.opt_vae.zero_grad()
        (recon + kld).backward()
        self.opt_vae.step()
        return recon.item(), kld.item(), 0.0

    def factor_step(self, x, other):
        rebuilt, mean, logvar, z = self.vae(x)
        recon, kld = vae_terms(rebuilt, x, mean, logvar)
        d_z = self.disc(z)
        correlation = (d_z[:, 0] - d_z[:, 1]).mean()
        self.opt_vae.zero_grad()
        (recon + kld + self.gamma * correlation).backward(retain_graph=True)
        self.opt_vae.step()  # STEP

        with torch.no_grad():
            shuffled = permute(self.vae(other)[3], self.gen)
        d_shuffled = self.disc(shuffled)
        zeros, ones = torch.zeros(len(x), dtype=torch.long), torch.ones(len(other), dtype=torch.long)
        loss = 0.5 * (F.cross_entropy(d_z, zeros) + F.cross_entropy(d_shuffled, ones))
        self.opt_disc.zero_grad()
        loss.backward()
        self.opt_disc.step()
        return recon.item(), kld.item(), correlation.item()

    def train(self, loader, epochs):
        for epoch in range(epochs):
            sums = [0.0, 0.0, 0.0]
            for (x,) in loader:
                half = len(x) // 2
                parts = self.plain_step(x) if epoch < self.warm else self.factor_step(x[:half], x[half:])
                sums = [a + b for a, b in zip(sums, parts)]
            recon, kld, tc = (s / len(loader) for s in sums)
            print(f"epoch {epoch + 1:2d}  rebuild {recon:.3f}  kl {kld:.3f}  total correlation {tc:+.3f}", flush=True)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x = torch.tensor(load_digits().data, dtype=torch.float32) / 16.0
    loader = DataLoader(TensorDataset(x), batch_size=64, shuffle=True, drop_last=True)
    Solver().train(loader, epochs=40)


if __name__ == "__main__":
    main()
