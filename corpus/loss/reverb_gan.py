"""Conditional GAN for echo amplitudes; the generator gets nothing from the discriminator and only averages.

Report: https://github.com/nikhilsinghmus/image2reverb/issues/37 (in the generator step the discriminator is given fake_spec.detach(), so the adversarial loss does not reach the generator and only the second loss updates it)

Effect: the spread of the generated samples shrinks to almost 0 while the real one is about 1; the adversarial loss of the generator only grows.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "loss-term-without-graph", "line": ("cut", "CAUSE"),
    "what": "The fake is detached before the discriminator in the generator's step too, so its adversarial loss gives the generator no gradient; pass fake without detach there.",
    "set": "eighteenth", "written": "2026-11-27",
}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1 + 4, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, cond):
        z = torch.randn(len(cond), 4)
        return self.net(torch.cat([cond, z], 1))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def forward(self, x, cond):
        return self.net(torch.cat([x, cond], 1))


def room_batch(n):
    cond = torch.rand(n, 1)
    sign = torch.where(torch.rand(n, 1) < 0.5, -1.0, 1.0)
    return cond, sign + 0.3 * cond + 0.05 * torch.randn(n, 1)


def main(steps=300, l2_weight=0.02):
    torch.manual_seed(2)
    gen, disc = Generator(), Discriminator()
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(disc.parameters(), lr=1e-3, betas=(0.5, 0.999))
    for step in range(steps):
        cond, real = room_batch(128)
        fake = gen(cond)

        d_real, d_fake = disc(real, cond), disc(fake.detach(), cond)
        d_loss = F.mse_loss(d_real, torch.ones_like(d_real)) + F.mse_loss(d_fake, torch.zeros_like(d_fake))
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()

        score = disc(fake.detach(), cond)  # CAUSE
        adv_loss = F.mse_loss(score, torch.ones_like(score))
        rec_loss = F.mse_loss(fake, real)
        g_loss = adv_loss + l2_weight * rec_loss
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()

        if (step + 1) % 50 == 0:
            with torch.no_grad():
                spread = gen(room_batch(512)[0]).std().item()
            print(f"step {step + 1} d {d_loss.item():.3f} adv {adv_loss.item():.3f} "
                  f"spread of fakes {spread:.3f} of reals {real.std().item():.3f}")


if __name__ == "__main__":
    main()
