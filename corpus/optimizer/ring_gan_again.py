"""A GAN on eight Gaussians in a ring. The discriminator calls every fake real to the end and its loss stays at 2 ln 2
or above, so the generator learns next to nothing from it. The generator's loss leaves gradients in the discriminator
as well, and as opt_d is cleared after its step instead of before its backward they are added to its own ones."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "gradient of another loss in the step",
    "kind": "foreign-gradient",
    "line": ["cleared", "cause"],
    "what": "The discriminator's gradients are cleared after opt_d.step(), so the gradient that the generator's loss left in the discriminator (pushing fakes towards 'real') is still there and is applied by opt_d.step().",
    "symptom": "no error; d_loss stays about 1.4 to 1.5, the discriminator is right on 0 % of the fakes",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(14)
torch.set_num_threads(1)


def mlp(n_in, n_out, hidden=48):
    return nn.Sequential(
        nn.Linear(n_in, hidden), nn.LeakyReLU(0.2),
        nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
        nn.Linear(hidden, n_out))


class Generator(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.latent = latent
        self.net = mlp(latent, 2)

    def forward(self, n):
        return self.net(torch.randn(n, self.latent))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(2, 1)

    def forward(self, x):
        return self.net(x).squeeze(-1)


def ring(n):
    angle = 2 * math.pi * torch.randint(0, 8, (n,)) / 8
    centre = torch.stack([angle.cos(), angle.sin()], dim=1)
    return 2 * centre + 0.05 * torch.randn(n, 2)


def bce(logits, value):
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, value))


generator, discriminator = Generator(), Discriminator()
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
BATCH = 128

for step in range(401):
    # generator
    opt_g.zero_grad()
    fake = generator(BATCH)
    g_loss = bce(discriminator(fake), 1.0)
    g_loss.backward()
    opt_g.step()

    # discriminator
    real = ring(BATCH)
    d_loss = bce(discriminator(real), 1.0) + bce(discriminator(fake.detach()), 0.0)
    d_loss.backward()
    opt_d.step()
    opt_d.zero_grad()  # <-- cause

    if step % 80 == 0:
        with torch.no_grad():
            sample = generator(512)
            acc_real = (discriminator(ring(512)) > 0).float().mean().item()
            acc_fake = (discriminator(sample) < 0).float().mean().item()
        print(f"step {step:3d}  d_loss {d_loss.item():.3f}  g_loss {g_loss.item():.3f}  D right on real {acc_real:.2f}"
              f"  on fake {acc_fake:.2f}  mean radius of the fakes {sample.norm(dim=1).mean().item():.2f}")
