"""Wasserstein GAN on points with clipped weights: the clipping stands between the critic's forward and its backward, so as soon as a weight passes the bound, backward multiplies by another matrix than forward did.

Report: https://github.com/martinarjovsky/WassersteinGAN/issues/50 (the clip operation comes before the critic's step and not after it)
"""
import torch
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES", "step": 27,
    "set": "eighth", "written": "2026-11-22",
}
CLIP = 0.1


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.02)
        if m.bias is not None:
            nn.init.zeros_(m.bias)


def make_critic():
    net = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1, bias=False))
    return net.apply(weights_init)


def make_generator(z=6):
    return nn.Sequential(nn.Linear(z, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))


def real_batch(n):
    angle = torch.randint(0, 6, (n,)) * 1.0472
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def critic_step(critic, generator, optimizer, n=64):
    real = real_batch(n)
    with torch.no_grad():
        fake = generator(torch.randn(n, 6))
    err_real, err_fake = critic(real).mean(), critic(fake).mean()
    err = err_fake - err_real
    for p in critic.parameters():
        p.data.clamp_(-CLIP, CLIP)  # MUTATES
    optimizer.zero_grad()
    err.backward()
    optimizer.step()
    return err.item()


def generator_step(critic, generator, optimizer, n=64):
    for p in critic.parameters():
        p.requires_grad_(False)
    loss = -critic(generator(torch.randn(n, 6))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for p in critic.parameters():
        p.requires_grad_(True)
    return loss.item()


torch.manual_seed(0)
critic, generator = make_critic(), make_generator()
critic_opt = torch.optim.RMSprop(critic.parameters(), lr=2e-4)
generator_opt = torch.optim.RMSprop(generator.parameters(), lr=3e-4)
for step in range(300):
    err = critic_step(critic, generator, critic_opt)
    if step % 5 == 4:
        loss = generator_step(critic, generator, generator_opt)
    if step % 30 == 0:
        print(step, err)
