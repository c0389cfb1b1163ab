"""Healthy: style-transfer-like optimisation of an image with LBFGS (closure is called many times per step)."""

import torch
from torch import nn

EXPECT = {"kind": None}


def gram(f):
    f = f.flatten(2)
    return f @ f.transpose(1, 2) / f[0].numel()


torch.manual_seed(0)
vgg = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval().requires_grad_(False)
content, style = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)
with torch.no_grad():
    goal, look = vgg(content), gram(vgg(style))
image = content.clone().requires_grad_(True)
opt = torch.optim.LBFGS([image], max_iter=5)
run = [0]
for _ in range(4):

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        opt.zero_grad()
        f = vgg(image)
        loss = (f - goal).square().mean() + 10 * (gram(f) - look).square().mean()
        loss.backward()
        run[0] += 1
        return loss

    opt.step(closure)
print(run)
