"""The reconstruction term is averaged over batch and pixels while the KL term is summed over everything, so the KL
outweighs it by far and the posterior collapses to the prior.

Report: zdebruine/MMVAE pull request #19 (KL summed, MSE averaged: KL drops to 0); forum threads on VAEs that output
one average image
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "posterior-collapsed",
    "line": ("cause", "HERE"),
    "plain": "held-out mse 0.0737 (pixel variance 0.0731), latent std 0.001, digit probe 0.10; with reduction='sum' mse 0.041, latent std 0.48, probe 0.76",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class GlyphVAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.to_mu = nn.Linear(64, latent)
        self.to_logvar = nn.Linear(64, latent)
        self.dec = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(),
                                 nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    def encode(self, x):
        h = self.enc(x)
        return self.to_mu(h), self.to_logvar(h)

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(z), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    recon = F.binary_cross_entropy_with_logits(logits, x)  # HERE
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return recon, kld


class Runner:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            self.model.train()
            total = 0.0
            for (x,) in loader:
                logits, mu, logvar = self.model(x)
                recon, kld = elbo_terms(logits, x, mu, logvar)
                loss = recon + kld
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
            if epoch % 10 == 9:
                print(f"epoch {epoch + 1:3d}  loss {total / len(loader):.4f}")


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = digits.target
    loader = DataLoader(TensorDataset(x[:1400]), batch_size=64, shuffle=True)

    model = GlyphVAE()
    Runner(model).fit(loader, epochs=40)

    model.eval()
    with torch.no_grad():
        mu, _ = model.encode(x)
        out = torch.sigmoid(model.dec(mu))
        mse = F.mse_loss(out[1400:], x[1400:]).item()
        base = x[1400:].var(0).mean().item()
    probe = LogisticRegression(max_iter=500).fit(mu[:1400].numpy(), y[:1400])
    acc = probe.score(mu[1400:].numpy(), y[1400:])
    print(f"held-out mse {mse:.4f} (pixel variance {base:.4f})")
    print(f"latent std {mu.std(0).mean().item():.4f}  digit accuracy from latents {acc:.3f}")


if __name__ == "__main__":
    main()
