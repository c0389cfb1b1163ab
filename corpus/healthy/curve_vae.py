"""VAE on short periodic curves: KL weight warmed up from zero, two micro-batches per update,
cosine rate down to zero, EMA swapped in for the test.
"""
import contextlib
import copy
import math

import torch
from torch import nn

EXPECT = {"framework": "plain", "kind": None, "set": "twentieth", "written": "2026-11-27"}

LENGTH, ACCUM, UPDATES = 32, 2, 200


def sample_curves(n, gen):
    t = torch.linspace(0, 1, LENGTH)
    freq = torch.empty(n, 1).uniform_(1, 2, generator=gen)
    phase = torch.empty(n, 1).uniform_(0, math.pi, generator=gen)
    amp = torch.empty(n, 1).uniform_(0.5, 1.5, generator=gen)
    return amp * torch.sin(2 * math.pi * freq * t + phase) + 0.05 * torch.randn(n, LENGTH, generator=gen)


class VAE(nn.Module):
    def __init__(self, latent=4, width=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(LENGTH, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.to_mu, self.to_logvar = nn.Linear(width, latent), nn.Linear(width, latent)
        self.dec = nn.Sequential(nn.Linear(latent, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                 nn.Linear(width, LENGTH))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        z = torch.distributions.Normal(mu, (0.5 * logvar).exp()).rsample()
        return self.dec(z), mu, logvar


def elbo_terms(x, recon, mu, logvar):
    rec = (recon - x).pow(2).sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec, kl


@torch.no_grad()
def update_ema(avg, model, decay):
    for a, p in zip(avg.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)


@contextlib.contextmanager
def averaged_weights(model, avg):
    kept = copy.deepcopy(model.state_dict())
    model.load_state_dict(avg.state_dict())
    try:
        yield
    finally:
        model.load_state_dict(kept)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    test = sample_curves(300, gen)
    model = VAE()
    avg = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=UPDATES, eta_min=0.0)
    for update in range(UPDATES):
        beta = 0.1 * min(1.0, update / 60)
        for _ in range(ACCUM):
            x = sample_curves(64, gen)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                recon, mu, logvar = model(x)
            rec, kl = elbo_terms(x, recon.float(), mu.float(), logvar.float())
            ((rec + beta * kl) / ACCUM).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        opt.zero_grad()
        sched.step()
        update_ema(avg, model, min(0.98, (update + 1) / (update + 10)))
        if update % 40 == 39:
            with averaged_weights(model, avg), torch.no_grad():
                test_rec, test_kl = elbo_terms(test, *model(test))
            print(f"update {update + 1} beta {beta:.3f} rec {rec.item():.3f} kl {kl.item():.2f} "
                  f"averaged: rec {test_rec.item():.3f} kl {test_kl.item():.2f}")


if __name__ == "__main__":
    main()
