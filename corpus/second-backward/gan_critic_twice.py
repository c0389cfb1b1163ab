"""Wasserstein GAN on images: the schedule raises the critic's steps to two, both of which see the same generated images with their graph."""
import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "step": 254,
    "set": "late", "written": "2026-11-22",
}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.up = nn.Linear(8, 8 * 4 * 4), nn.ConvTranspose2d(8, 1, 2, stride=2)

    def forward(self, z):
        return torch.tanh(self.up(self.fc(z).relu().view(-1, 8, 4, 4)))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 8, 3, stride=2), nn.Linear(8 * 9, 1)

    def forward(self, x):
        return self.out(nn.functional.leaky_relu(self.conv(x), 0.2).flatten(1))


def blobs(n):
    grid = torch.arange(8.0)
    cx, cy = 2 + 4 * torch.rand(2, n, 1)
    rows, columns = (grid - cx).square(), (grid - cy).square()
    return 2 * torch.exp(-(rows[:, :, None] + columns[:, None, :]) / 4)[:, None] - 1


def critic_steps(step):
    return 1 if step < 254 else 2


torch.manual_seed(0)
G, D = Generator(), Critic()
g_opt, d_opt = torch.optim.RMSprop(G.parameters(), 5e-4), torch.optim.RMSprop(D.parameters(), 5e-4)
for step in range(400):
    real, fake = blobs(16), G(torch.randn(16, 8))
    for _ in range(critic_steps(step)):
        d_loss = D(fake).mean() - D(real).mean()  # REUSED
        d_opt.zero_grad()
        d_loss.backward()
        d_opt.step()
        with torch.no_grad():
            for p in D.parameters():
                p.clamp_(-0.1, 0.1)
    g_loss = -D(G(torch.randn(16, 8))).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    if step % 50 == 0:
        print(step, round(d_loss.item(), 4), round(g_loss.item(), 4))
