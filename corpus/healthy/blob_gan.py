"""Trains a hinge GAN on a ring of Gaussians with accelerate and two optimizers; healthy: the fakes are detached for the
discriminator, the discriminator is frozen during the generator's step and unfrozen after it, both are zeroed before use.

Report: https://github.com/NVlabs/denoising-diffusion-gan/issues/6 (is switching off the discriminator's gradients in the
generator's step correct?)
"""
import math
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "accelerate", "kind": None, "set": "twentysecond", "written": "2026-11-28"}


def ring(n=12800, modes=8):
    k = torch.randint(modes, (n,)) * (2 * math.pi / modes)
    return torch.stack([k.cos(), k.sin()], 1) * 2 + 0.1 * torch.randn(n, 2)


class Generator(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.latent = latent
        self.net = nn.Sequential(nn.Linear(latent, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))

    def forward(self, n):
        return self.net(torch.randn(n, self.latent))


def discriminator():
    return nn.Sequential(spectral_norm(nn.Linear(2, 128)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(128, 128)),
                         nn.LeakyReLU(0.2), nn.Linear(128, 1))


@torch.no_grad()
def report(G, data, tag):
    pts = G(1000)
    near = torch.cdist(pts, data[:2000]).min(1).values.mean().item()
    cover = torch.cdist(data[:2000], pts).min(1).values.mean().item()
    print(f"{tag} fake->real {near:.3f} real->fake {cover:.3f}")


def main():
    torch.manual_seed(9)
    data = ring()
    accelerator = Accelerator(cpu=True)
    G, D = Generator(), discriminator()
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=4e-3, betas=(0.0, 0.9))
    loader = DataLoader(TensorDataset(data), batch_size=64, shuffle=True, drop_last=True)
    G, D, opt_g, opt_d, loader = accelerator.prepare(G, D, opt_g, opt_d, loader)

    report(G, data, "start")
    for step, (real,) in enumerate(loader):
        fake = G(len(real))
        opt_d.zero_grad()
        d_loss = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake.detach())).mean()
        accelerator.backward(d_loss)
        opt_d.step()

        D.requires_grad_(False)
        opt_g.zero_grad()
        g_loss = -D(fake).mean()
        accelerator.backward(g_loss)
        opt_g.step()
        D.requires_grad_(True)
        if (step + 1) % 50 == 0:
            report(G, data, f"step {step + 1} d {d_loss.item():.3f} g {g_loss.item():.3f}")


if __name__ == "__main__":
    main()
