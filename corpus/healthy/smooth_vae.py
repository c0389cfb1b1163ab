"""Trains a VAE on digits; validation is done with averaged weights that are swapped in and out again. Nothing goes wrong."""
import torch
from torch import nn
import torch.nn.functional as F
from contextlib import contextmanager
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "eighteenth", "written": "2026-11-27"}


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp() if self.training else mu
        return self.dec(z), mu, logvar


def elbo(model, x):
    logits, mu, logvar = model(x)
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return rec + kl, rec, kl


class WeightAverage:
    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.values = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            if v.is_floating_point():
                self.values[k].lerp_(v, 1 - self.decay)
            else:
                self.values[k].copy_(v)

    @contextmanager
    def applied(self, model):
        backup = {k: v.detach().clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.values)
        try:
            yield model
        finally:
            model.load_state_dict(backup)


def main():
    torch.manual_seed(0)
    x = torch.tensor(load_digits().data / 16.0, dtype=torch.float32)
    x = x[torch.randperm(len(x))]
    train, val = x[:1500], x[1500:]
    model = VAE()
    avg = WeightAverage(model)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(240):
        model.train()
        loss, rec, kl = elbo(model, train[torch.randint(0, 1500, (64,))])
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg.update(model)
        if (step + 1) % 60 == 0:
            with avg.applied(model), torch.no_grad():
                model.eval()
                vloss = elbo(model, val)[0].item()
            print(f"step {step + 1} loss {loss.item():.2f} rec {rec.item():.2f} kl {kl.item():.2f} val {vloss:.2f}")


if __name__ == "__main__":
    main()
