"""Healthy: Lightning-like module with hooks, manual optimisation of two optimizers, logged metrics as detached tensors."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {"kind": None}


class LitGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = (
            nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 4), nn.Tanh()),
            nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(0.2, inplace=True), nn.Linear(12, 1)),
        )
        self.logged = []

    def log(self, name, value):
        self.logged.append((name, value.detach()))

    def adversarial(self, logits, real):
        return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))

    def configure_optimizers(self):
        return torch.optim.Adam(self.generator.parameters(), 2e-4), torch.optim.Adam(
            self.discriminator.parameters(), 2e-4
        )

    def training_step(self, batch, opts):
        og, od = opts
        z = torch.randn(len(batch), 3)
        for p in self.discriminator.parameters():
            p.requires_grad = False
        g = self.adversarial(self.discriminator(self.generator(z)), 1)
        og.zero_grad()
        g.backward()
        og.step()
        for p in self.discriminator.parameters():
            p.requires_grad = True
        d = (
            self.adversarial(self.discriminator(batch), 1)
            + self.adversarial(self.discriminator(self.generator(z).detach()), 0)
        ) / 2
        od.zero_grad()
        d.backward()
        od.step()
        self.log("g", g)
        self.log("d", d)


class Trainer:
    def fit(self, module, loader, epochs=2):
        opts = module.configure_optimizers()
        module.train()
        for _ in range(epochs):
            for batch in loader:
                module.training_step(batch, opts)
            with torch.no_grad():
                module.eval()
                module.log("sample", module.generator(torch.randn(2, 3)).mean())
                module.train()


torch.manual_seed(0)
model = LitGAN()
Trainer().fit(model, [torch.randn(8, 4) for _ in range(6)])
print(len(model.logged))
