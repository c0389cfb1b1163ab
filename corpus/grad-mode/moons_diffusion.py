"""Denoising diffusion on the two moons with sample previews during training.

Story: every hundred steps some points are drawn from the model to look at.  Late in training
only a rough preview is wanted (the chain is left early).  The next training step then raises
"element 0 of tensors does not require grad".
Based on reports such as nianticlabs/monodepth2#24 and Lightning-AI/pytorch-lightning#18222
(the same message; the cause here, a set_grad_enabled that is not undone on an early return,
is from forum answers to that error).
"""
import math
from types import SimpleNamespace

import torch
from torch import nn
from sklearn.datasets import make_moons

EXPECT = {
    "class": "x", "kind": "grad-mode-disabled", "cut_marker": "CUT", "plain": {"outcome": "error", "error": "element 0 of tensors does not require grad and does not have a grad_fn"},
    "set": "fourteenth", "written": "2026-11-26",
}

CFG = SimpleNamespace(T=40, steps=600, batch=256, lr=2e-3, preview_every=100, rough_from=300, rough_at=15)


class Schedule:
    def __init__(self, T):
        self.T = T
        self.beta = torch.linspace(1e-3, 0.2, T)
        self.alpha = 1 - self.beta
        self.bar = torch.cumprod(self.alpha, 0)

    def noise_to(self, x0, t, eps):
        bar = self.bar[t].unsqueeze(1)
        return bar.sqrt() * x0 + (1 - bar).sqrt() * eps


class Denoiser(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, hidden), nn.SiLU())
        self.inp = nn.Linear(2, hidden)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2))

    def forward(self, x, t):
        freq = torch.exp(-math.log(1000) * torch.arange(8) / 8)
        angle = t.unsqueeze(1).float() * freq
        emb = torch.cat([angle.sin(), angle.cos()], dim=1)
        return self.body(self.inp(x) + self.time(emb))


def draw(model, sched, n, stop_at=None):
    torch.set_grad_enabled(False)  # CUT
    model.eval()
    x = torch.randn(n, 2)
    for t in reversed(range(sched.T)):
        eps = model(x, torch.full((n,), t))
        x = (x - sched.beta[t] / (1 - sched.bar[t]).sqrt() * eps) / sched.alpha[t].sqrt()
        if t > 0:
            x = x + sched.beta[t].sqrt() * torch.randn_like(x)
        if t == stop_at:
            return x
    torch.set_grad_enabled(True)
    return x


def describe(points):
    return "mean (%.2f, %.2f) std (%.2f, %.2f)" % (*points.mean(0).tolist(), *points.std(0).tolist())


def main():
    torch.manual_seed(0)
    data = torch.tensor(make_moons(4000, noise=0.05, random_state=0)[0], dtype=torch.float32)
    data = (data - data.mean(0)) / data.std(0)
    sched = Schedule(CFG.T)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=CFG.lr)
    for step in range(1, CFG.steps + 1):
        model.train()
        x0 = data[torch.randint(len(data), (CFG.batch,))]
        t = torch.randint(CFG.T, (CFG.batch,))
        eps = torch.randn_like(x0)
        loss = (model(sched.noise_to(x0, t, eps), t) - eps).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % CFG.preview_every == 0:
            stop_at = CFG.rough_at if step >= CFG.rough_from else None
            print(f"step {step} loss {loss.item():.3f} samples {describe(draw(model, sched, 200, stop_at))}")


if __name__ == "__main__":
    main()
