"""Trains a denoiser on the 8x8 digits with bfloat16 autocast, a GradScaler, gradient accumulation, clipping and an EMA;
healthy: gradients are unscaled before clipping, the loss is divided once, the EMA weights are swapped in for validation
and back out, and the schedule ends at zero.

Report: https://github.com/pytorch/examples/issues/1196 (unscale before clipping, which is done here)
"""
import copy
import torch
import torch.nn as nn
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "twentysecond", "written": "2026-11-28"}

STEPS, ACCUM, T = 120, 2, 40
torch.manual_seed(6)
abar = torch.cumprod(1 - torch.linspace(1e-3, 0.2, T), 0)
images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
train_x, val_x = images[:1500], images[1500:]


class ResBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.zeros_(self.fc2.weight)
        nn.init.zeros_(self.fc2.bias)

    def forward(self, h):
        return h + self.fc2(torch.nn.functional.silu(self.fc1(self.norm(h))))


class Denoiser(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.inp = nn.Linear(64, width)
        self.time = nn.Embedding(T, width)
        self.blocks = nn.Sequential(*[ResBlock(width) for _ in range(3)])
        self.out = nn.Linear(width, 64)

    def forward(self, x, t):
        return self.out(self.blocks(self.inp(x) + self.time(t)))


def diffusion_loss(model, x0, gen=None):
    t = torch.randint(T, (len(x0),), generator=gen)
    noise = torch.randn(x0.shape, generator=gen)
    a = abar[t][:, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pred = model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t)
    return ((pred.float() - noise) ** 2).mean()


model = Denoiser()
ema = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 10) * (1 - s / STEPS))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for step in range(STEPS):
    total = 0.0
    for _ in range(ACCUM):
        x0 = train_x[torch.randint(len(train_x), (64,))]
        loss = diffusion_loss(model, x0) / ACCUM
        scaler.scale(loss).backward()
        total += loss.item()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    scheduler.step()
    with torch.no_grad():
        for e, p in zip(ema, model.parameters()):
            e.lerp_(p, 0.05)
    if (step + 1) % 30 == 0:
        raw = copy.deepcopy(model.state_dict())
        with torch.no_grad():
            for e, p in zip(ema, model.parameters()):
                p.copy_(e)
            val = diffusion_loss(model, val_x, torch.Generator().manual_seed(0)).item()
        model.load_state_dict(raw)
        print(f"step {step + 1} loss {total:.4f} ema val {val:.4f} lr {scheduler.get_last_lr()[0]:.2e}")
