"""Small DDPM on 8x8 digits with an EMA copy; after each evaluation the training goes on from the averaged weights.

Report: https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/186 (after validation with EMA the call
ema_model.restore(model.parameters()) is missing), same in
https://github.com/harubaru/waifu-diffusion/pull/31

store() and copy_to() are called before the validation loss, restore() never is. With a decay of 0.995 the average
lags far behind, so after steps 80, 160 and 240 the training loss jumps back (from 0.35 to 0.83, from 0.28 to 0.69, from 0.25 to 0.57)
and the EMA validation loss ends at 0.48 instead of 0.36 with restore().
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "framework": "plain", "kind": "weights-put-back", "line": ("called", "CAUSE"),
    "what": "The EMA weights are copied into the model for evaluation but the stored training weights are never restored, so the optimizer goes on from the averaged weights; call ema.restore after the evaluation.",
    "set": "twentieth", "written": "2026-11-27",
}

T = 100
betas = torch.linspace(1e-3, 0.08, T)
alpha_bar = torch.cumprod(1 - betas, 0)


class EMA:
    def __init__(self, parameters, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in parameters]
        self.kept = None

    @torch.no_grad()
    def step(self, parameters):
        for s, p in zip(self.shadow, parameters):
            s.lerp_(p, 1 - self.decay)

    def store(self, parameters):
        self.kept = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.copy_(s)

    @torch.no_grad()
    def restore(self, parameters):
        for k, p in zip(self.kept, parameters):
            p.copy_(k)
        self.kept = None


class Denoiser(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.time = nn.Embedding(T, 32)
        self.inp = nn.Linear(64 + 32, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 64)

    def forward(self, x, t):
        h = F.silu(self.inp(torch.cat([x, self.time(t)], 1)))
        h = h + F.silu(self.mid(h))
        return self.out(h)


def noise_loss(net, x, generator=None):
    t = torch.randint(0, T, (len(x),), generator=generator)
    eps = torch.randn(x.shape, generator=generator)
    a = alpha_bar[t][:, None]
    return F.mse_loss(net(a.sqrt() * x + (1 - a).sqrt() * eps, t), eps)


def main():
    torch.manual_seed(0)
    data = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    train, val = data[:1500], data[1500:]
    net = Denoiser()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    ema = EMA(net.parameters(), decay=0.995)
    for step in range(320):
        batch = train[torch.randint(0, len(train), (128,))]
        loss = noise_loss(net, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.step(net.parameters())
        if step % 20 == 2:
            print(f"step {step} train loss {loss.item():.3f}")
        if (step + 1) % 80 == 0:
            ema.store(net.parameters())
            ema.copy_to(net.parameters())  # CAUSE
            with torch.no_grad():
                val_loss = noise_loss(net, val, torch.Generator().manual_seed(5))
            print(f"step {step} ema val loss {val_loss.item():.3f}")  # OTHER


if __name__ == "__main__":
    main()
