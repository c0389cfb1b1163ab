"""Fit 2-D Gaussian splats to an image by gradient, and a quantising camera by evolution.

Right because: the renderer is differentiable and trains splat positions, sizes and weights;
the camera's output is rounded to 16 levels, so its three settings have no useful gradient
and are tuned by a mirrored evolution strategy under no_grad (plain tensors which never get
a .grad); the settings enter the gradient part as constants.  A numpy copy of the picture
is used only for reporting.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}

SIZE = 24


class Splats(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.centre = nn.Parameter(torch.rand(n, 2) * 1.6 - 0.8)
        self.log_size = nn.Parameter(torch.full((n, 2), -1.6) + 0.1 * torch.randn(n, 2))
        self.angle = nn.Parameter(torch.randn(n) * 0.3)
        self.weight = nn.Parameter(torch.full((n,), 0.3))
        axis = torch.linspace(-1, 1, SIZE)
        self.register_buffer("grid", torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2))

    def forward(self):
        d = self.grid[:, None] - self.centre[None]
        c, s = self.angle.cos(), self.angle.sin()
        u = torch.stack([c * d[..., 0] + s * d[..., 1], -s * d[..., 0] + c * d[..., 1]], -1)
        g = torch.exp(-0.5 * ((u * torch.exp(-self.log_size)) ** 2).sum(-1))
        return (g * self.weight).sum(-1).view(SIZE, SIZE)


def expose(img, cam):
    """Smooth camera response: gain, gamma, offset (all kept positive through exp)."""
    gain, gamma, offset = cam.exp()
    return gain * (img.clamp_min(0) + 0.02) ** gamma + 0.05 * offset


def quantise(img):
    return torch.round(img.clamp(0, 1.5) * 15) / 15


class Evolution:
    def __init__(self, mean, sigma, lr, pairs=6):
        self.mean, self.sigma, self.lr, self.pairs = mean, sigma, lr, pairs

    @torch.no_grad()
    def step(self, fitness):
        eps = torch.randn(self.pairs, len(self.mean))
        up = torch.stack([fitness(self.mean + self.sigma * e) for e in eps])
        down = torch.stack([fitness(self.mean - self.sigma * e) for e in eps])
        ranks = torch.cat([up, down]).argsort().argsort().float() / (2 * self.pairs - 1) - 0.5
        direction = ((ranks[:self.pairs] - ranks[self.pairs:])[:, None] * eps).mean(0)
        self.mean = self.mean - self.lr * direction
        return torch.cat([up, down]).mean().item()


def main():
    torch.manual_seed(4)
    picture = torch.tensor(load_digits().images[3], dtype=torch.float32)[None, None] / 16
    scene = F.interpolate(picture, size=(SIZE, SIZE), mode="bicubic", align_corners=True)[0, 0].clamp(0, 1)
    true_cam = torch.tensor([0.25, -0.4, 0.3])
    photo = quantise(expose(scene, true_cam))
    known = scene * (torch.rand(SIZE, SIZE) < 0.3)              # a few calibrated pixels
    mask = known > 0

    splats, camera = Splats(20), Evolution(torch.zeros(3), sigma=0.05, lr=0.06)
    opt = torch.optim.Adam([{"params": [splats.centre, splats.angle], "lr": 1e-2},
                            {"params": [splats.log_size, splats.weight], "lr": 2e-2}])
    for step in range(500):
        cam = camera.mean
        img = splats()
        loss = F.mse_loss(expose(img, cam), photo) + 0.5 * F.mse_loss(img[mask], known[mask])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 3 == 0:
            score = camera.step(lambda c: F.mse_loss(quantise(expose(scene * mask, c))[mask], photo[mask]))
        if step % 100 == 99 or step == 0:
            view = splats().detach().numpy()
            psnr = -10 * np.log10(np.mean((view - scene.numpy()) ** 2))
            print(f"step {step} loss {loss.item():.5f} psnr {psnr:.2f} camera score {score:.5f} "
                  f"camera {[round(v, 2) for v in camera.mean.tolist()]}")


if __name__ == "__main__":
    main()
