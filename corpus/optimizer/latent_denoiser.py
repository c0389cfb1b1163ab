"""Trains a small noise-prediction network (DDPM) on two-dimensional points; after each validation the network goes on training from the averaged weights.

Report: https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/186 (validation does store() and copy_to() of the EMA weights, but restore() is never called afterwards)

Effect: every 100 steps the training loss jumps back to almost its starting value (the EMA with decay 0.999 is still close to the initialisation).
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "weights-put-back", "line": ("called", "CAUSE"),
    "what": "The validation copies the EMA weights into the model and never restores the trained weights, so training continues from the EMA weights; call ema.restore(...) at the end of the validation.",
    "set": "eighteenth", "written": "2026-11-27",
}

T = 50
betas = torch.linspace(1e-4, 0.1, T)
alpha_bar = torch.cumprod(1 - betas, 0)


class EMAModel:
    def __init__(self, parameters, decay=0.999):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in parameters]
        self.stored = None

    @torch.no_grad()
    def step(self, parameters):
        for s, p in zip(self.shadow, parameters):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)

    def store(self, parameters):
        self.stored = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.copy_(s)

    @torch.no_grad()
    def restore(self, parameters):
        for s, p in zip(self.stored, parameters):
            p.copy_(s)


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + 8, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        freq = torch.exp(torch.arange(4) * 0.7)
        ang = t[:, None].float() / T * freq
        return self.net(torch.cat([x, ang.sin(), ang.cos()], 1))


def sample_data(n, gen):
    a = torch.rand(n, generator=gen) * math.pi * 4
    return torch.stack([a.cos() * a / 6, a.sin() * a / 6], 1)


def diffusion_loss(model, x, gen):
    t = torch.randint(0, T, (len(x),), generator=gen)
    noise = torch.randn(x.shape, generator=gen)
    ab = alpha_bar[t][:, None]
    return F.mse_loss(model(ab.sqrt() * x + (1 - ab).sqrt() * noise, t), noise)


def validate(model, ema):
    ema.store(model.parameters())
    ema.copy_to(model.parameters())  # CAUSE
    with torch.no_grad():
        gen = torch.Generator().manual_seed(9)
        value = diffusion_loss(model, sample_data(512, gen), gen).item()
    return value  # OTHER


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = Denoiser()
    ema = EMAModel(list(model.parameters()))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(350):
        loss = diffusion_loss(model, sample_data(256, gen), gen)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.step(model.parameters())
        if step % 100 in (0, 1, 50, 99):
            print(f"step {step} loss {loss.item():.4f}")
        if (step + 1) % 100 == 0:
            print(f"step {step} validation loss {validate(model, ema):.4f}")
    print(f"final loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
