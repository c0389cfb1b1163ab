"""GAN on 8x8 digits with separate optimizers, a detached fake batch and a discriminator that is
switched off in the generator step.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "twentieth", "written": "2026-11-27"}

Z = 24


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.06)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(Z, 128), nn.BatchNorm1d(128), nn.ReLU(True),
            nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(True),
            nn.Linear(128, 64), nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Dropout(0.2),
            nn.Linear(128, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def set_requires_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


def pixel_gap(netG, data):
    netG.eval()
    with torch.no_grad():
        fake = netG(torch.randn(500, Z))
    netG.train()
    return (fake.mean(0) - data.mean(0)).abs().mean().item(), (fake.std(0) - data.std(0)).abs().mean().item()


def main():
    torch.manual_seed(0)
    data = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    netG, netD = Generator().apply(weights_init), Discriminator().apply(weights_init)
    optG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    for it in range(180):
        real = data[torch.randint(0, len(data), (64,))]
        fake = netG(torch.randn(64, Z))

        set_requires_grad(netD, True)
        netD.zero_grad()
        out_real, out_fake = netD(real), netD(fake.detach())
        lossD = criterion(out_real, torch.full_like(out_real, 0.9)) + criterion(out_fake, torch.zeros_like(out_fake))
        lossD.backward()
        optD.step()

        set_requires_grad(netD, False)
        netG.zero_grad()
        out = netD(fake)
        lossG = criterion(out, torch.ones_like(out))
        lossG.backward()
        optG.step()
        if it % 30 == 29:
            gap_mean, gap_std = pixel_gap(netG, data)
            print(f"iter {it + 1} lossD {lossD.item():.3f} lossG {lossG.item():.3f} "
                  f"gap of the means {gap_mean:.3f} of the stds {gap_std:.3f}")


if __name__ == "__main__":
    main()
