"""Trains a small denoising diffusion model on a 2-D spiral with accelerate; every preview sampling throws the training weights away and goes on from the averaged ones.

Report: https://github.com/PKU-YuanGroup/Open-Sora-Plan/issues/186 (ema_model.store and copy_to before validation, but restore is missing, so training continues from the EMA weights; the same in https://github.com/harubaru/waifu-diffusion/pull/31)
What is seen: from step 60 on, each preview sets the model back to the slow average; the loss jumps up after every preview and ends
clearly higher than with ema.restore.
"""
import math

import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "weights-put-back", "line": ("called", "OTHER"),
    "what": "the EMA weights are copied into the model for the preview and the stored training weights are never put back, so training goes on from the EMA weights; call ema.restore after sampling",
    "set": "nineteenth", "written": "2026-11-27",
}

T = 50
betas = torch.linspace(1e-3, 0.12, T)
alpha_bar = torch.cumprod(1 - betas, 0)


class EMAModel:
    def __init__(self, parameters, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in parameters]

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
        self.time = nn.Embedding(T, 32)
        self.net = nn.Sequential(nn.Linear(34, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


@torch.no_grad()
def sample(model, n=256):
    x = torch.randn(n, 2)
    for t in reversed(range(T)):
        eps = model(x, torch.full((n,), t))
        x = (x - betas[t] / (1 - alpha_bar[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
        if t > 0:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    return x


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    s = torch.rand(3840).sqrt() * 3 * math.pi
    points = torch.stack([s * torch.cos(s), s * torch.sin(s)], 1) / 5 + 0.02 * torch.randn(3840, 2)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(points), batch_size=128, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    ema = EMAModel(model.parameters(), decay=0.998)
    step, running = 0, []
    for epoch in range(12):
        model.train()
        for (x0,) in loader:
            t = torch.randint(0, T, (len(x0),))
            noise = torch.randn_like(x0)
            xt = alpha_bar[t, None].sqrt() * x0 + (1 - alpha_bar[t, None]).sqrt() * noise
            loss = (model(xt, t) - noise).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            ema.step(model.parameters())
            running.append(loss.item())
            step += 1
            if step % 60 == 0:
                ema.store(model.parameters())
                ema.copy_to(model.parameters())  # OTHER
                cloud = sample(accelerator.unwrap_model(model))  # CAUSE
                print(f"step {step} loss {sum(running[-30:]) / 30:.4f} sample spread {cloud.std(0).mean().item():.3f}")
    print("mean loss of the last 30 steps:", round(sum(running[-30:]) / 30, 4))


main()
