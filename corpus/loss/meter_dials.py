"""The weight of the divergence is step / warmup without a bound: it grows on after the warm-up, and late in training
every latent is squeezed into the prior.

Report: https://github.com/asyml/texar/issues/87 and umautobots/bidirection-trajectory-predicter issue 4 (a weight that
is raised by a fixed rate, and goes beyond 1)
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "kind": "posterior-collapsed",
    "line": ("cause", "HERE"),
    "plain": "held-out reconstruction 26.6 with no active latent; 21.6 with three if the weight ends at 1",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


class DialVAE(nn.Module):
    def __init__(self, pixels=64, hidden=128, latent=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mu = nn.Linear(hidden, latent)
        self.logvar = nn.Linear(hidden, latent)
        self.decode = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, pixels)
        )

    def forward(self, x):
        h = self.body(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decode(z), mu, logvar


def elbo_terms(model, x):
    logits, mu, logvar = model(x)
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
    kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1).mean()
    return recon, kl


class Fitter:
    def __init__(self, model, lr=3e-3, warmup=240):
        self.model = model
        self.warmup = warmup
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.seen = 0

    def weight(self):
        return self.seen / self.warmup  # HERE

    def step(self, x):
        recon, kl = elbo_terms(self.model, x)
        loss = recon + self.weight() * kl
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.seen += 1
        return recon.item(), kl.item()

    def fit(self, data, epochs, batch=64):
        g = torch.Generator().manual_seed(1)
        for epoch in range(epochs):
            order = torch.randperm(len(data), generator=g)
            for i in range(0, len(order) - batch + 1, batch):
                recon, kl = self.step(data[order[i:i + batch]])
            if epoch % 6 == 5:
                print(f"epoch {epoch + 1:3d}  recon {recon:.2f}  kl {kl:.2f}")


@torch.no_grad()
def report(model, data):
    model.eval()
    recon, kl = elbo_terms(model, data)
    _, mu, _ = model(data)
    active = (mu.var(0) > 0.05).sum().item()
    return recon.item(), kl.item(), active


def main():
    torch.manual_seed(8)
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    train, held = images[:1500], images[1500:]
    model = DialVAE()
    Fitter(model).fit(train, epochs=42)
    recon, kl, active = report(model, held)
    print(f"held out  recon {recon:.2f}  kl {kl:.2f}  recon + kl {recon + kl:.2f}  active latents {active}")


if __name__ == "__main__":
    main()
