"""VAE trainer with callbacks; from some step on a callback reports gradient norms.

Source: https://github.com/patrickloeber/pytorchTutorial/issues/19 (order of zero_grad; a real case:
https://github.com/tientrandinh/Revisiting-Reverse-Distillation/issues/12)
"""
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "k", "kind": "gradient-not-used", "clearing_marker": "CLEARING", "step": 170,
    "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class VAE(nn.Module):
    def __init__(self, d=64, h=64, z=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.SiLU())
        self.mu, self.logvar = nn.Linear(h, z), nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.SiLU(), nn.Linear(h, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(recon, x, mu, logvar):
    nll = F.binary_cross_entropy_with_logits(recon, x, reduction="none").sum(1)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1)
    return (nll + kl).mean()


class Callback:
    def on_after_backward(self, trainer): ...

    def on_step_end(self, trainer, loss): ...


class PrintLoss(Callback):
    def on_step_end(self, trainer, loss):
        if trainer.global_step % 30 == 0:
            print(f"step {trainer.global_step} loss {loss:.3f}")


class GradNormMonitor(Callback):
    def __init__(self, start):
        self.start, self.history = start, []

    def on_after_backward(self, trainer):
        if trainer.global_step < self.start:
            return
        norms = {n: p.grad.norm().item() for n, p in trainer.model.named_parameters()}
        self.history.append((trainer.global_step, norms))
        trainer.model.zero_grad()  # CLEARING


class Trainer:
    def __init__(self, model, max_steps, callbacks=()):
        self.model, self.max_steps, self.callbacks = model, max_steps, callbacks
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.global_step = 0

    def fit(self, loader):
        for x in loader:
            if self.global_step == self.max_steps:
                return
            self.optimizer.zero_grad()
            recon, mu, logvar = self.model(x)
            loss = elbo(recon, x, mu, logvar)
            loss.backward()
            for cb in self.callbacks:
                cb.on_after_backward(self)
            self.optimizer.step()
            for cb in self.callbacks:
                cb.on_step_end(self, loss.item())
            self.global_step += 1


def endless(x, batch):
    while True:
        yield x[torch.randint(0, len(x), (batch,))]


def main():
    torch.manual_seed(0)
    x = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    Trainer(VAE(), 320, [PrintLoss(), GradNormMonitor(start=170)]).fit(endless(x, 64))


if __name__ == "__main__":
    main()
