"""Healthy: Wasserstein GAN on a signal whose critic is clipped through .data, but after its step, when no graph of it is alive; the generator's turn keeps the critic out of the graph.

Report it resembles: https://github.com/jiamings/wgan/issues/2 (weights are to be clipped after the critic's update)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "eighth", "written": "2026-11-22"}


class Critic(nn.Module):
    def __init__(self, length=16):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(1, 12, 5, 2, 2), nn.LeakyReLU(0.2, inplace=True), nn.Conv1d(12, 16, 5, 2, 2), nn.LeakyReLU(0.2, inplace=True))
        self.out = nn.Linear(16 * length // 4, 1, bias=False)

    def forward(self, x):
        return self.out(self.conv(x[:, None]).flatten(1))

    def clip(self, bound):
        for p in self.parameters():
            p.data.clamp_(-bound, bound)


class Generator(nn.Module):
    def __init__(self, z=6, length=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(z, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, length))

    def forward(self, z):
        return torch.tanh(self.net(z))


def real_signals(n, length=16):
    time = torch.linspace(0, 6.28, length)
    return 0.8 * torch.sin(time + 6.28 * torch.rand(n, 1)) + 0.02 * torch.randn(n, length)


torch.manual_seed(0)
critic, generator = Critic(), Generator()
critic_opt = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
generator_opt = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
distance = []
for step in range(80):
    critic.requires_grad_(True)
    for _ in range(4):
        real, z = real_signals(48), torch.randn(48, 6)
        with torch.no_grad():
            fake = generator(z)
        gap = critic(real).mean() - critic(fake).mean()
        critic_opt.zero_grad()
        (-gap).backward()
        critic_opt.step()
        critic.clip(0.15)
    distance.append(gap.item())
    critic.requires_grad_(False)
    loss = -critic(generator(torch.randn(48, 6))).mean()
    generator_opt.zero_grad()
    loss.backward()
    generator_opt.step()
    if step % 10 == 0:
        print(step, sum(distance[-10:]) / len(distance[-10:]), loss.item())
