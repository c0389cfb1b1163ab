"""Point rasteriser with an own Function: its backward knows two scales per point, a model with three reaches it after densification.

Report: https://github.com/hbb1/2d-gaussian-splatting/issues/43
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward-shape", "apply_marker": "APPLY",
    "set": "second", "written": "2026-11-22",
}


class Rasterize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, means, scales, colors, pixels):
        d = pixels[:, None] - means[None, :, :2]
        w = torch.exp(-(d / scales[None, :, :2]).square().sum(-1))
        ctx.save_for_backward(d, w, scales, colors)
        return w @ colors

    @staticmethod
    def backward(ctx, grad):
        d, w, scales, colors = ctx.saved_tensors
        dw = (grad @ colors.T) * w
        grad_means = torch.zeros(len(scales), 3)
        grad_means[:, :2] = (2 * dw[..., None] * d / scales[None, :, :2].square()).sum(0)
        grad_scales = (2 * dw[..., None] * d.square() / scales[None, :, :2] ** 3).sum(0)
        return grad_means, grad_scales, w.T @ grad, None


class Points:
    def __init__(self, n, dims):
        self.means = nn.Parameter(torch.rand(n, 3))
        self.scales = nn.Parameter(torch.full((n, dims), 0.3))
        self.colors = nn.Parameter(torch.rand(n, 3))

    def optimizer(self):
        return torch.optim.Adam([self.means, self.scales, self.colors], 1e-2)


torch.manual_seed(0)
points = Points(12, 2)
opt = points.optimizer()
for step in range(60):
    if step == 40:  # densify
        old, points = points, Points(16, 3)
        points.means.data[:12] = old.means.data
        opt = points.optimizer()
    pixels = torch.rand(20, 2)
    image = Rasterize.apply(points.means, points.scales, points.colors, pixels)  # APPLY
    loss = nn.functional.l1_loss(image, pixels[:, :1].expand(-1, 3))
    opt.zero_grad()
    loss.backward()
    opt.step()
