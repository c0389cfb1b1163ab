"""GAN on a ring: when the discriminator wins too often, noise is added to what it sees, in place on a detached tensor that shares its memory with the generator's output."""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 1207,
    "set": "late", "written": "2026-11-22",
}


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return layers[:-1]


def ring(n):
    angle = 6.2832 * torch.rand(n)
    return 0.8 * torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(n, 2)


torch.manual_seed(0)
generator = nn.Sequential(*mlp(4, 24, 24, 2), nn.Tanh())
discriminator = nn.Sequential(*mlp(2, 24, 24, 1))
g_opt = torch.optim.Adam(generator.parameters(), 5e-4, betas=(0.5, 0.99))
d_opt = torch.optim.Adam(discriminator.parameters(), 2e-3, betas=(0.5, 0.99))
bce = nn.functional.binary_cross_entropy_with_logits
wins = 0.5
for step in range(2000):
    real, fake = ring(32), generator(torch.randn(32, 4))
    shown = fake.detach()
    if wins > 0.69:
        real = real + 0.1 * torch.randn_like(real)
        shown += 0.1 * torch.randn_like(shown)  # MUTATES
    on_real, on_fake = discriminator(real), discriminator(shown)
    d_loss = bce(on_real, torch.ones(32, 1)) + bce(on_fake, torch.zeros(32, 1))
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    wins = 0.99 * wins + 0.005 * ((on_real > 0).float().mean() + (on_fake < 0).float().mean()).item()
    g_loss = bce(discriminator(fake), torch.ones(32, 1))
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    if step % 100 == 0:
        print(step, round(d_loss.item(), 3), round(g_loss.item(), 3), round(wins, 3))
