"""Diffusion of facial coefficients from speech: in the second stage the predicted noise is weighted for the mouth by *=, on the very output that tanh has kept for backward.

Report: https://github.com/yunik1004/SAiD/issues/8 (output of TanhBackward0 modified in place; += and *= in the training code were the reason)
"""
import torch
from torch import nn

EXPECT = {
    "class": "inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 180,
    "set": "fifth", "written": "2026-11-22",
}


class Scheduler:
    def __init__(self, steps=50):
        self.alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.1, steps), 0)

    def add_noise(self, x, noise, t):
        a = self.alphas[t][:, None, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, coefficients=12, audio=6, dim=24):
        super().__init__()
        self.time = nn.Embedding(50, dim)
        self.inputs = nn.Linear(coefficients + audio, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Sequential(nn.Linear(dim, coefficients), nn.Tanh())

    def forward(self, noisy, audio, t):
        h = self.inputs(torch.cat([noisy, audio], -1)) + self.time(t)[:, None]
        return self.out(self.mix(h)[0])


torch.manual_seed(0)
denoiser, scheduler = Denoiser(), Scheduler()
optimizer = torch.optim.AdamW(denoiser.parameters(), lr=2e-3)
ema = {k: v.clone() for k, v in denoiser.state_dict().items()}
mouth = torch.ones(12)
mouth[4:9] = 2.0
project = torch.randn(6, 12) / 3
for step in range(240):
    audio = torch.randn(8, 10, 6)
    coefficients = torch.tanh(audio @ project)
    noise = torch.randn_like(coefficients).clamp(-1, 1)
    t = torch.randint(0, 50, (8,))
    pred = denoiser(scheduler.add_noise(coefficients, noise, t), audio, t)
    if step >= 180:
        pred *= mouth  # MUTATES
        noise *= mouth
    loss = nn.functional.mse_loss(pred, noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for k, v in denoiser.state_dict().items():
        ema[k].lerp_(v, 0.01)
    if step % 30 == 0:
        print(step, loss.item())
