"""Signed distance of a circle from a grid of features that are interpolated by an own Function: its backward computes the slopes from what was kept of the forward, in NumPy; the eikonal term asks for their derivative.

Report: https://github.com/NVlabs/tiny-cuda-nn/issues/58 (the backward functions cannot be followed by PyTorch, a loss on the gradient such as the eikonal one does not get through)
"""
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "custom-function", "kind": "wrong-double-backward", "apply_marker": "APPLIED",
    "set": "ninth", "written": "2026-11-23",
}


class Interpolate(torch.autograd.Function):
    """Bilinear look-up in a grid (r, r, c) at points (n, 2) within the unit square, as a kernel would do it."""

    @staticmethod
    def corners(points, resolution):
        scaled = np.clip(points, 0, 1) * (resolution - 1)
        low = np.minimum(scaled.astype(np.int64), resolution - 2)
        return low, scaled - low

    @staticmethod
    def forward(ctx, points, grid):
        r = grid.shape[0]
        low, part = Interpolate.corners(points.detach().numpy(), r)
        values = grid.detach().numpy()
        ctx.low, ctx.part = low, part
        ctx.save_for_backward(points, grid)
        out = 0
        for dy in (0, 1):
            for dx in (0, 1):
                weight = (part[:, 0] if dx else 1 - part[:, 0]) * (part[:, 1] if dy else 1 - part[:, 1])
                out = out + weight[:, None] * values[low[:, 1] + dy, low[:, 0] + dx]
        return torch.from_numpy(out).to(points.dtype)

    @staticmethod
    def backward(ctx, grad):
        points, grid = ctx.saved_tensors
        low, part = ctx.low, ctx.part
        values, r = grid.detach().numpy(), grid.shape[0]
        upstream = grad.detach().numpy()
        grad_points, grad_grid = np.zeros(points.shape), np.zeros(grid.shape)
        for dy in (0, 1):
            for dx in (0, 1):
                wx, wy = (part[:, 0] if dx else 1 - part[:, 0]), (part[:, 1] if dy else 1 - part[:, 1])
                y, x = low[:, 1] + dy, low[:, 0] + dx
                np.add.at(grad_grid, (y, x), (wx * wy)[:, None] * upstream)
                along = (values[y, x] * upstream).sum(1) * (r - 1)
                grad_points[:, 0] += (1 if dx else -1) * wy * along
                grad_points[:, 1] += (1 if dy else -1) * wx * along
        return torch.from_numpy(grad_points).to(points.dtype), torch.from_numpy(grad_grid).to(grid.dtype)


class DistanceField(nn.Module):
    def __init__(self, resolution=9, channels=6):
        super().__init__()
        self.grid = nn.Parameter(0.1 * torch.randn(resolution, resolution, channels))
        self.decoder = nn.Sequential(nn.Linear(channels, 24), nn.Softplus(beta=5), nn.Linear(24, 1))

    def forward(self, points):
        return self.decoder(Interpolate.apply(points, self.grid)).squeeze(1)  # APPLIED


def circle(points):
    return (points - 0.5).norm(dim=1) - 0.3


torch.manual_seed(0)
field = DistanceField()
optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
for step in range(140):
    points = torch.rand(128, 2, requires_grad=True)
    distance = field(points)
    near = (circle(points).abs() < 0.1).float().detach()
    loss = (near * (distance - circle(points.detach())).abs()).mean() + 0.02 * distance.abs().mean()
    (slope,) = torch.autograd.grad(distance.sum(), points, create_graph=True)
    eikonal = (slope.norm(dim=1) - 1).square().mean()
    loss = loss + 0.1 * eikonal
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), "eikonal", eikonal.item(), "has a graph:", eikonal.requires_grad)
