"""Trains a tiny diffusion model with an averaged copy under accelerate; after each validation the training goes on from the average.
Report: https://github.com/harubaru/waifu-diffusion/pull/31 (EMA parameters are copied to the UNet for saving and the original ones are not
restored, so training continues on the EMA parameters) and https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/186
Effect: the loss jumps back up after every validation (0.45 to 0.64), the averaged model ends at 0.58 (0.53 in the mended copy).
"""
import math

import torch
import torch.nn as nn
from accelerate import Accelerator
from sklearn.datasets import make_moons
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "weights-put-back", "line": ("called", "CAUSE"),
    "what": "the averaged weights are copied into the model for validation and the training weights are never restored, so training goes on from the average",
    "set": "twentieth", "written": "2026-11-27",
}

T = 100
BETAS = torch.linspace(1e-4, 0.08, T)
ABAR = torch.cumprod(1 - BETAS, 0)


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + 16, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        freqs = torch.exp(-math.log(1000.0) * torch.arange(8) / 8)
        angles = t[:, None].float() * freqs
        return self.net(torch.cat([x, angles.sin(), angles.cos()], dim=1))


class EMAModel:
    def __init__(self, parameters, decay=0.995):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in parameters]
        self.saved = None

    @torch.no_grad()
    def step(self, parameters):
        for s, p in zip(self.shadow, parameters):
            s.lerp_(p, 1 - self.decay)

    def store(self, parameters):
        self.saved = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.copy_(s)

    @torch.no_grad()
    def restore(self, parameters):
        for s, p in zip(self.saved, parameters):
            p.copy_(s)


def noise_loss(model, x):
    t = torch.randint(0, T, (len(x),))
    noise = torch.randn_like(x)
    a = ABAR[t][:, None]
    return nn.functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)


def validate(model, ema, points):
    ema.store(model.parameters())
    ema.copy_to(model.parameters())  # CAUSE
    model.eval()
    with torch.no_grad():
        loss = noise_loss(model, points).item()
    model.train()  # OTHER
    return loss


def main():
    torch.manual_seed(9)
    accelerator = Accelerator(cpu=True)
    points = torch.tensor(make_moons(2560, noise=0.05, random_state=0)[0], dtype=torch.float32)
    points = (points - points.mean(0)) / points.std(0)
    loader = DataLoader(TensorDataset(points[:1920]), batch_size=32, shuffle=True)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    ema = EMAModel(model.parameters())
    step, recent = 0, []
    for epoch in range(4):
        for (x,) in loader:
            loss = noise_loss(model, x)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            ema.step(model.parameters())
            recent.append(loss.item())
            step += 1
            if step % 20 == 0:
                print(f"step {step:3d}  loss {sum(recent) / len(recent):.3f}")
                recent = []
        print(f"epoch {epoch}: averaged model {validate(model, ema, points[1920:]):.3f}")


if __name__ == "__main__":
    main()
