"""A variational autoencoder with an annealed KL term. The reconstruction gets better, but the KL term in the log climbs and
climbs and a larger beta makes no difference; samples from the prior are noise. The KL terms are gathered as Python floats
and put into a new tensor, so they are part of the loss's value but not of its graph."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "loss term without a graph",
    "kind": "loss-term-without-graph",
    "line": ["cut", "cause"],
    "what": "kl is rebuilt with torch.tensor(...) from .item() values, so the KL term has no grad_fn and gives no gradient; only the reconstruction trains the encoder.",
    "symptom": "no error; the KL in the log grows, beta has no effect",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(13)
torch.set_num_threads(1)


class VAE(nn.Module):
    def __init__(self, n_in=64, hidden=64, latent=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.to_mean = nn.Linear(hidden, latent)
        self.to_logvar = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, n_in))

    def forward(self, x):
        h = self.body(x)
        mean, logvar = self.to_mean(h), self.to_logvar(h)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(z), mean, logvar


def kl_per_dimension(mean, logvar):
    return 0.5 * (mean.pow(2) + logvar.exp() - 1 - logvar).mean(dim=0)


def elbo_terms(model, x):
    logits, mean, logvar = model(x)
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
    parts = {f"z{k}": value for k, value in enumerate(kl_per_dimension(mean, logvar))}
    kl = torch.tensor([value.item() for value in parts.values()]).sum()  # <-- cause
    return recon, kl


def beta_at(step, warmup=100, top=1.0):
    return top * min(1.0, step / warmup)


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

step = 0
for epoch in range(12):
    order = torch.randperm(len(x))
    sums = [0.0, 0.0]
    for i in range(0, len(x) - 63, 64):
        recon, kl = elbo_terms(model, x[order[i:i + 64]])
        loss = recon + beta_at(step) * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums[0] += recon.item() / 28
        sums[1] += kl.item() / 28
        step += 1
    if epoch % 2 == 1:
        print(f"epoch {epoch:2d}  step {step:3d}  beta {beta_at(step):.1f}  reconstruction {sums[0]:.2f}  KL {sums[1]:.2f}")
