"""For each preview the EMA weights are loaded into the model that is being trained and never put back, so every 120
steps training is thrown back to the slow average near the start.

Report: PKU-YuanGroup/Open-Sora-Plan issue #186, harubaru/waifu-diffusion pull request #31, huggingface/diffusers
issue #7549
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "weights-put-back",
    "line": ("mutated", "HERE"),
    "plain": "loss 0.222 at step 960 and ripple power share 0.74; with the preview made from a copy 0.136 and 0.89",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class Denoiser(nn.Module):
    def __init__(self, length=32, width=128, steps=50):
        super().__init__()
        self.time = nn.Embedding(steps, 32)
        self.inp = nn.Linear(length + 32, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, length)

    def forward(self, x, t):
        h = F.silu(self.inp(torch.cat([x, self.time(t)], dim=1)))
        for layer in self.mid:
            h = h + F.silu(layer(h))
        return self.out(h)


class Schedule:
    def __init__(self, steps=50):
        self.steps = steps
        self.beta = torch.linspace(1e-3, 0.15, steps)
        self.alpha = 1 - self.beta
        self.abar = torch.cumprod(self.alpha, 0)

    def noise(self, x, t, eps):
        a = self.abar[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * eps

    @torch.no_grad()
    def sample(self, model, n, length, gen):
        x = torch.randn(n, length, generator=gen)
        for i in reversed(range(self.steps)):
            t = torch.full((n,), i)
            eps = model(x, t)
            x = (x - self.beta[i] / (1 - self.abar[i]).sqrt() * eps) / self.alpha[i].sqrt()
            if i > 0:
                x = x + self.beta[i].sqrt() * torch.randn(x.shape, generator=gen)
        return x


class Ema:
    def __init__(self, model, decay=0.998):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)


def ripples(n, gen, length=32):
    t = torch.linspace(0, 1, length)
    freq = 2 + torch.randint(0, 2, (n, 1), generator=gen)
    phase = torch.rand(n, 1, generator=gen) * 6.28
    return torch.sin(6.28 * freq * t + phase)


def preview(model, ema, sched, gen):
    model.load_state_dict(ema.shadow.state_dict())  # HERE
    model.eval()
    x = sched.sample(model, 200, 32, gen)
    model.train()
    power = torch.fft.rfft(x).abs().pow(2)
    return (power[:, 2:4].sum(1) / power.sum(1)).mean().item()


def main():
    torch.manual_seed(15)
    gen = torch.Generator().manual_seed(151)
    data = ripples(4000, gen)
    sched, model = Schedule(), Denoiser()
    ema = Ema(model)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    recent = []
    for step in range(1, 961):
        x = data[torch.randint(0, len(data), (128,), generator=gen)]
        t = torch.randint(0, sched.steps, (128,), generator=gen)
        eps = torch.randn(x.shape, generator=gen)
        loss = F.mse_loss(model(sched.noise(x, t, eps), t), eps)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        recent.append(loss.item())
        if step % 120 == 0:
            share = preview(model, ema, sched, gen)
            print(f"step {step:4d}  loss {sum(recent[-40:]) / 40:.4f}  ripple power share {share:.3f}")


if __name__ == "__main__":
    main()
