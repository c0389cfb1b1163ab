"""1-D diffusion denoiser. The noise level passes through a learned time scale before the embedding table."""

import os

import torch
import torch.nn as nn

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "HERE"),
    "module": "time.scale",
    "parameters": ["time.scale.fc1.weight", "time.scale.fc1.bias", "time.scale.fc2.weight", "time.scale.fc2.bias"],
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(30)
LEN, LEVELS = 32, 24


class TimeScale(nn.Module):
    """learned monotone-ish map of t in (0,1) to a level"""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(1, 16)
        self.fc2 = nn.Linear(16, 1)

    def forward(self, t):
        w = self.fc2(torch.tanh(self.fc1(t[:, None]))).squeeze(-1)
        u = torch.sigmoid(4 * (t - 0.5) + w)
        return (u * (LEVELS - 1)).long()  # HERE


class TimeEmbed(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.scale = TimeScale()
        self.table = nn.Embedding(LEVELS, d)
        self.mix = nn.Linear(d, d)

    def forward(self, t):
        return self.mix(torch.nn.functional.silu(self.table(self.scale(t))))


class ResBlock(nn.Module):
    def __init__(self, c, dil):
        super().__init__()
        self.norm = nn.GroupNorm(4, c)
        self.a = nn.Conv1d(c, c, 3, padding=dil, dilation=dil)
        self.b = nn.Conv1d(c, c, 1)

    def forward(self, x, e):
        h = self.a(torch.nn.functional.silu(self.norm(x) + e[:, :, None]))
        return x + self.b(torch.nn.functional.silu(h))


class Denoiser(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.time = TimeEmbed(c)
        self.inp = nn.Conv1d(1, c, 3, padding=1)
        self.body = nn.ModuleList(ResBlock(c, d) for d in (1, 2, 4))
        self.out = nn.Conv1d(c, 1, 3, padding=1)
        nn.init.zeros_(self.out.weight)

    def forward(self, x, t):
        e = self.time(t)
        h = self.inp(x)
        for blk in self.body:
            h = blk(h, e)
        return self.out(h)


net = Denoiser()
den = torch.compile(net, backend=BACKEND)
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
ema = {k: v.clone() for k, v in net.state_dict().items()}
axis = torch.linspace(0, 6.28, LEN)
for step in range(20):
    x0 = torch.sin(axis * torch.randint(1, 4, (32, 1)) + 6.28 * torch.rand(32, 1)).unsqueeze(1)
    t = torch.rand(32)
    eps = torch.randn_like(x0)
    a = torch.cos(t * 1.57).view(-1, 1, 1)
    xt = a * x0 + (1 - a * a).sqrt() * eps
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pred = den(xt, t)
    loss = (pred.float() - eps).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for k, v in net.state_dict().items():
            ema[k].lerp_(v, 0.05)
    print("step", step, "mse", round(loss.item(), 4))
