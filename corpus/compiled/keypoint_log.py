"""Keypoint heatmap regression with a small experiment logger."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": "graph-retained", "line": ("held", "HERE"), "set": "compiled", "written": "2026-11-24"}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(1)
S, K = 16, 3


class HourGlass(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.down1 = nn.Conv2d(1, c, 3, stride=2, padding=1)
        self.down2 = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.up1 = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.up2 = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = nn.Conv2d(c, K, 1)

    def forward(self, x):
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(a))
        u = F.relu(self.up1(b))
        return self.out(F.relu(self.up2(torch.cat([u, a], 1))))


@torch.compile(backend=BACKEND)
def soft_argmax(heat):
    p = heat.flatten(2).softmax(-1)
    g = torch.linspace(-1, 1, S)
    gy, gx = torch.meshgrid(g, g, indexing="ij")
    xy = torch.stack([gx.flatten(), gy.flatten()], -1)
    return p @ xy


class Meter:
    def __init__(self):
        self.rows = {}

    def add(self, name, value):
        self.rows.setdefault(name, []).append(value)  # HERE

    def mean(self, name, last=5):
        vals = self.rows[name][-last:]
        return float(sum(float(v.detach()) for v in vals) / len(vals))


def make(n=12):
    xy = torch.rand(n, K, 2) * 1.4 - 0.7
    g = torch.linspace(-1, 1, S)
    dx = g.view(1, 1, 1, S) - xy[..., 0].view(n, K, 1, 1)
    dy = g.view(1, 1, S, 1) - xy[..., 1].view(n, K, 1, 1)
    amp = torch.tensor([1.0, -1.0, 2.0]).view(1, K, 1, 1)
    img = (amp * torch.exp(-(dx**2 + dy**2) / 0.05)).sum(1, keepdim=True)
    return img + 0.05 * torch.randn_like(img), xy


net = HourGlass()
cnet = torch.compile(net, backend=BACKEND)
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
meter = Meter()
for step in range(40):
    img, xy = make()
    pred = soft_argmax(cnet(img))
    dist = F.smooth_l1_loss(pred, xy, beta=0.1, reduction="none").sum(-1)
    loss = dist.mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    meter.add("lr", torch.tensor(opt.param_groups[0]["lr"]))
    meter.add("per_point", dist.mean(0).mean())
    if step % 4 == 0:
        vimg, vxy = make(24)
        meter.add("val", F.mse_loss(soft_argmax(cnet(vimg)), vxy))
    if step % 8 == 7:
        print(step, f"loss {loss.item():.4f} avg {meter.mean('per_point'):.4f} val {meter.mean('val', 2):.4f}")
