"""Denoising diffusion of digits under accelerate: small batches first, then gradients are gathered over four of them; what goes backward is the sum so far, which still has the parts that went backward before.

Report: https://github.com/lucidrains/denoising-diffusion-pytorch/issues/251 (asks whether accelerator.backward should not get the accumulated total_loss in place of the loss)
"""
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "late-second-backward", "framework": "accelerate", "kind": "second-backward", "bridge_marker": "REUSED", "step": 50,
    "set": "tenth", "written": "2026-11-23",
}


class Denoiser(nn.Module):
    def __init__(self, size=64, width=96, times=50):
        super().__init__()
        self.time = nn.Embedding(times, width)
        self.inlet, self.hidden, self.out = nn.Linear(size, width), nn.Linear(width, width), nn.Linear(width, size)

    def forward(self, x, t):
        h = nn.functional.silu(self.inlet(x) + self.time(t))
        h = h + nn.functional.silu(self.hidden(h))
        return self.out(h)


class Diffusion(nn.Module):
    def __init__(self, times=50):
        super().__init__()
        self.net = Denoiser(times=times)
        self.register_buffer("alpha_bar", torch.cumprod(1 - torch.linspace(1e-3, 0.15, times), 0))

    def forward(self, x):
        t = torch.randint(0, len(self.alpha_bar), (len(x),))
        noise, a = torch.randn_like(x), self.alpha_bar[t, None]
        return (self.net(a.sqrt() * x + (1 - a).sqrt() * noise, t) - noise).square().mean()


class Trainer:
    def __init__(self, model, images):
        self.accelerator = Accelerator(cpu=True)
        self.model, self.optimizer = self.accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
        self.images = images

    def step(self, gather):
        total_loss = 0.0
        self.optimizer.zero_grad()
        for _ in range(gather):
            pick = torch.randint(0, len(self.images), (24,))
            total_loss = total_loss + self.model(self.images[pick]) / gather  # REUSED
            self.accelerator.backward(total_loss)
        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return total_loss.item()


torch.manual_seed(0)
images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
trainer = Trainer(Diffusion(), images)
for step in range(90):
    loss = trainer.step(gather=1 if step < 50 else 4)
    if step % 10 == 0:
        print(step, loss)
