"""Keypoint detector with a focal loss under autocast: the heatmap is bounded by 1 - 1e-4, which is one in bfloat16, and a confident pixel has the logarithm of zero.

Report: https://github.com/zylo117/Yet-Another-EfficientDet-Pytorch/issues/502 (clamp rounds in half precision), the bound as in xingyizhou/CenterNet issues 201 and 234
"""
import torch
from torch import nn

EXPECT = {
    "class": "amp", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 118,
    "set": "fifth", "written": "2026-11-22",
}


def _sigmoid(x):
    return torch.clamp(x.sigmoid(), min=1e-4, max=1 - 1e-4)


def focal_loss(pred, gt):
    pos, neg = gt.eq(1).float(), gt.lt(1).float()
    pos_loss = torch.log(pred) * torch.pow(1 - pred, 2) * pos
    neg_loss = torch.log(1 - pred) * torch.pow(pred, 2) * torch.pow(1 - gt, 4) * neg  # CULPRIT
    return -(pos_loss.sum() + neg_loss.sum()) / pos.sum().clamp(min=1)


def batch(n=8, size=12, contrast=1.0):
    centres = torch.randint(1, size - 1, (n, 2))
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"), -1)
    distance = (grid[None] - centres[:, None, None]).pow(2).sum(-1).float()
    heat = torch.exp(-distance / 1.5)[:, None]
    return contrast * 4 * (distance < 1).float()[:, None] + 0.05 * torch.randn(n, 1, size, size), heat


class Detector(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.hm = nn.Conv2d(width, 1, 1)
        nn.init.constant_(self.hm.bias, -2.19)

    def forward(self, images):
        return self.hm(self.body(self.stem(images)))


torch.manual_seed(0)
net = Detector()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(200):
    images, heat = batch(contrast=1.0 if step < 118 else 3.0)  # the second camera
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = focal_loss(_sigmoid(net(images)), heat)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 20 == 0 or not loss.isfinite():
        print(step, loss.item())
    if scaler.get_scale() < 1e-3:
        break
