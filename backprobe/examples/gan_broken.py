"""The GAN with a mistake: pixels are rounded to whole grey levels, and a step has no slope to learn from."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


class Generator(nn.Module):
    def __init__(self, noise=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(noise, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64))

    def forward(self, z):
        return torch.round(torch.sigmoid(self.layers(z)) * 16) / 16


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))

    def forward(self, images):
        return self.layers(images).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()
    torch.manual_seed(0)
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    G, D = Generator(), Discriminator()
    optimizer_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    for step in range(options.steps):
        real = images[torch.randint(0, len(images), (64,))]
        fake = G(torch.randn(64, 16))

        optimizer_d.zero_grad()
        on_real, on_fake = D(real), D(fake.detach())
        loss_d = F.binary_cross_entropy_with_logits(on_real, torch.ones(64))
        loss_d = loss_d + F.binary_cross_entropy_with_logits(on_fake, torch.zeros(64))
        loss_d.backward()
        optimizer_d.step()

        optimizer_g.zero_grad()
        loss_g = F.binary_cross_entropy_with_logits(D(fake), torch.ones(64))
        loss_g.backward()
        optimizer_g.step()
        if step % 50 == 0 or step == options.steps - 1:
            print(f"step {step}: discriminator {loss_d.item():.3f}, generator {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
