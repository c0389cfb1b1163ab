"""Healthy: GAN on digits with a penalty on the gradient at real pictures, every sixteenth step; once the pictures are rotated at random the penalty is differentiated through their resampling, which this version can.

Report it resembles: https://github.com/pytorch/pytorch/issues/34704 (derivative for grid_sampler_2d_backward is not implemented; met with R1 and adaptive augmentation, in earlier versions)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ninth", "written": "2026-11-23"}


class Augment:
    """Random rotations and scales of pictures, both real and generated ones."""

    def __init__(self, degrees=20.0, scale=0.1):
        self.degrees, self.scale, self.p = degrees, scale, 0.0

    def __call__(self, images):
        if self.p == 0.0:
            return images
        n = len(images)
        on = (torch.rand(n) < self.p).float()
        angle = on * torch.deg2rad(self.degrees * (2 * torch.rand(n) - 1))
        zoom = 1 + on * self.scale * (2 * torch.rand(n) - 1)
        zero = torch.zeros(n)
        theta = torch.stack([torch.stack([zoom * angle.cos(), -angle.sin(), zero], 1), torch.stack([angle.sin(), zoom * angle.cos(), zero], 1)], 1)
        grid = F.affine_grid(theta, images.shape, align_corners=False)
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


class Discriminator(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, width, 3, 2, 1), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.fc = nn.Linear(8 * width, 1)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.2)
        x = F.leaky_relu(self.conv2(x), 0.2)
        return self.fc(x.flatten(1)).squeeze(1)


class Generator(nn.Module):
    def __init__(self, latent=8, width=12):
        super().__init__()
        self.fc = nn.Linear(latent, 8 * width)
        self.up1, self.up2 = nn.ConvTranspose2d(2 * width, width, 2, 2), nn.ConvTranspose2d(width, 1, 2, 2)

    def forward(self, z):
        x = F.relu(self.fc(z)).view(len(z), -1, 2, 2)
        return self.up2(F.relu(self.up1(x))).sigmoid()


def r1(net, augment, real):
    real = real.detach().requires_grad_(True)
    score = net(augment(real))
    (gradient,) = torch.autograd.grad(score.sum(), real, create_graph=True)
    return gradient.square().sum((1, 2, 3)).mean()


torch.manual_seed(0)
images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
G, D, augment = Generator(), Discriminator(), Augment()
opt_g, opt_d = torch.optim.Adam(G.parameters(), 2e-3, betas=(0.0, 0.99)), torch.optim.Adam(D.parameters(), 2e-3, betas=(0.0, 0.99))
for step in range(120):
    if step == 60:
        augment.p = 0.4
    real, fake = images[torch.randint(0, len(images), (24,))], G(torch.randn(24, 8))
    loss_d = F.softplus(-D(augment(real))).mean() + F.softplus(D(augment(fake.detach()))).mean()
    opt_d.zero_grad()
    loss_d.backward()
    if step % 16 == 0:
        (0.5 * 1.0 * 16 * r1(D, augment, real)).backward()
    opt_d.step()
    loss_g = F.softplus(-D(augment(fake))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 10 == 0:
        print(step, loss_d.item(), loss_g.item())
