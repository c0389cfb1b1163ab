"""Trains a small DDPM on 2-D points with an EMA of the weights; the EMA weights are copied into the model for the preview
samples and the raw weights are never put back, so from the first preview on training goes on from the average (the
training loss jumps up after every preview and ends higher than in the mended copy).

Report: https://github.com/harubaru/waifu-diffusion/pull/31 (EMA parameters are copied to the UNet on save and the
original parameters are not restored, so training continues on the EMA parameters)
"""
import torch
import torch.nn as nn
from sklearn.datasets import make_moons

EXPECT = {
    "framework": "plain", "kind": "weights-put-back", "line": ("called", "OTHER"),
    "what": "After sampling with the EMA weights the stored training weights are never restored, so training continues from the averaged weights; call ema.restore(model) after the preview.",
    "set": "twentysecond", "written": "2026-11-28",
}

T = 50
betas = torch.linspace(1e-3, 0.15, T)
alphas, abar = 1 - betas, torch.cumprod(1 - betas, 0)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    def update(self, model):
        torch._foreach_lerp_(self.shadow, [p.data for p in model.parameters()], 1 - self.decay)

    def store(self, model):
        self.saved = [p.detach().clone() for p in model.parameters()]

    def copy_to(self, model):
        torch._foreach_copy_([p.data for p in model.parameters()], self.shadow)

    def restore(self, model):
        torch._foreach_copy_([p.data for p in model.parameters()], self.saved)


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.time = nn.Embedding(T, 16)
        self.net = nn.Sequential(nn.Linear(18, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], dim=1))


@torch.no_grad()
def sample(model, n=256):
    x = torch.randn(n, 2)
    for t in reversed(range(T)):
        x = (x - betas[t] / (1 - abar[t]).sqrt() * model(x, torch.full((n,), t))) / alphas[t].sqrt()
        x = x + (betas[t].sqrt() * torch.randn_like(x) if t > 0 else 0)
    return x


torch.manual_seed(5)
data = torch.tensor(make_moons(4000, noise=0.04, random_state=0)[0], dtype=torch.float32)
data = (data - data.mean(0)) / data.std(0)
model = Denoiser()
ema = EMA(model, decay=0.995)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
history = []
for step in range(360):
    x0, t = data[torch.randint(len(data), (256,))], torch.randint(0, T, (256,))
    noise = torch.randn_like(x0)
    xt = abar[t].sqrt()[:, None] * x0 + (1 - abar[t]).sqrt()[:, None] * noise
    loss = ((model(xt, t) - noise) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update(model)
    history.append(loss.item())
    if (step + 1) % 20 == 0:
        print(f"step {step + 1} loss {sum(history[-20:]) / 20:.4f}")
    if (step + 1) % 100 == 0:
        ema.store(model)
        ema.copy_to(model)  # OTHER
        pts = sample(model)  # CAUSE
        print(f"  preview: distance to data {torch.cdist(pts, data).min(1).values.mean().item():.4f}")
print(f"mean loss of the last 60 steps {sum(history[-60:]) / 60:.4f}")
