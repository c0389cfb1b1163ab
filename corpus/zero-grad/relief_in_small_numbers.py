"""Relief of a surface from pictures with mixed precision in float16: the scaler is meant to be there, but the option it is asked for has another spelling; once the loss is weighted down for the second stage, its gradient is too small for half and becomes nothing.

Report: https://github.com/engichang1467/Open-Rig3R/issues/35 (autocast in fp16 with no GradScaler, gradients silently underflow to zero)
"""
import argparse

import torch
from torch import nn

EXPECT = {
    "class": "dies-late", "kind": "zero-grad", "cut_marker": "CUT", "step": 50,
    "set": "tenth", "written": "2026-11-23",
}
parser = argparse.ArgumentParser()
parser.add_argument("--precision", default="float16", choices=["float32", "float16"])
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--refine-weight", type=float, default=1e-5)


class ReliefNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inlet = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.inlet(x))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.out(x)


def surfaces(n, size=32):
    """Shaded pictures of smooth surfaces, lit from the left."""
    coarse = torch.randn(n, 1, 5, 5)
    height = nn.functional.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=True)
    shade = torch.zeros_like(height)
    shade[..., 1:] = (height[..., 1:] - height[..., :-1]).clamp(-1, 1)
    return 0.5 + shade, 0.2 * height


args = parser.parse_args([])
torch.manual_seed(0)
net = ReliefNet()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", enabled=args.precision == "fp16")
half = torch.autocast("cpu", torch.float16, enabled=args.precision == "float16")
for step in range(80):
    weight = 1.0 if step < 50 else args.refine_weight
    picture, height = surfaces(args.batch)
    with half:
        predicted = net(picture)
    error = predicted.float() - height  # CUT
    loss = weight * error.square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(step, error.square().mean().item(), net.inlet.weight.grad.abs().max().item())
