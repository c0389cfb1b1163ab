"""Variational autoencoder with a tracker of its terms: from the epoch on that is logged in detail, the terms are appended as they are, and every batch's graph stays."""
import collections

import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 348,
    "set": "late", "written": "2026-11-22",
}


class Tracker:
    def __init__(self):
        self.totals, self.detail = collections.Counter(), collections.defaultdict(list)
        self.verbose = False

    def add(self, **terms):
        for name, value in terms.items():
            self.totals[name] += value.item()
            if self.verbose:
                self.detail[name].append(value)  # HOLDS

    def summary(self):
        text = ", ".join(f"{name} {value:.2f}" for name, value in self.totals.items())
        self.totals.clear()
        return text


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 8))

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        kl = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1).mean()
        return (self.decoder(z) - x).square().sum(1).mean(), kl


torch.manual_seed(0)
mixing = torch.randn(2, 8)
model, tracker = VAE(), Tracker()
opt = torch.optim.Adam(model.parameters(), 2e-3)
for epoch in range(9):
    tracker.verbose = epoch >= 6  # the learning curve of the last epochs goes into the paper
    for batch in range(58):
        x = torch.randn(32, 2) @ mixing + 0.1 * torch.randn(32, 8)
        error, kl = model(x)
        loss = error + min(1.0, epoch / 4) * 0.2 * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        tracker.add(error=error, kl=kl)
    print("epoch", epoch, tracker.summary())
