"""WGAN on the digits whose critic compares with learned prototypes, gradient penalty later.

Story: the first epochs run without the penalty, then it is switched on.  It works for most
batches and raises NotImplementedError in the last batch of the epoch, which is small.
Based on a public report: pytorch/pytorch#83510 ("Cdist backward dependent on compute_mode"):
for few rows torch.cdist takes another kernel, and that one has no second derivative.
"""
import torch
from torch import nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader

EXPECT = {
    "class": "x", "kind": "backward-error", "source_marker": "SRC", "plain": {"outcome": "error", "error": "the derivative for '_cdist_backward' is not implemented"},
    "set": "fourteenth", "written": "2026-11-26",
}


class Generator(nn.Module):
    def __init__(self, noise=16):
        super().__init__()
        self.noise = noise
        self.net = nn.Sequential(
            nn.Linear(noise, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 64), nn.Tanh()
        )

    def forward(self, n):
        return self.net(torch.randn(n, self.noise))


class PrototypeCritic(nn.Module):
    def __init__(self, prototypes=20, dim=24):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(64, 96), nn.Softplus(), nn.Linear(96, dim))
        self.prototypes = nn.Parameter(torch.randn(prototypes, dim))
        self.score = nn.Linear(prototypes, 1, bias=False)

    def forward(self, x):
        distance = torch.cdist(self.embed(x), self.prototypes)  # SRC
        return self.score(torch.exp(-0.1 * distance)).squeeze(1)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (grad,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (grad.norm(dim=1) - 1).pow(2).mean()


class Wgan:
    def __init__(self, penalty=5.0, critic_steps=3):
        self.g, self.d = Generator(), PrototypeCritic()
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.penalty, self.critic_steps = penalty, critic_steps

    def critic_update(self, real, with_penalty):
        fake = self.g(len(real)).detach()
        loss = self.d(fake).mean() - self.d(real).mean()
        if with_penalty:
            loss = loss + self.penalty * gradient_penalty(self.d, real, fake)
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def generator_update(self, n):
        self.d.requires_grad_(False)
        loss = -self.d(self.g(n)).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        self.d.requires_grad_(True)
        return loss.item()


def main():
    torch.manual_seed(0)
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    loader = DataLoader(images, batch_size=64, shuffle=True)
    gan = Wgan()
    step = 0
    for epoch in range(12):
        with_penalty = epoch >= 5
        for real in loader:
            d_loss = gan.critic_update(real, with_penalty)
            if step % gan.critic_steps == 0:
                g_loss = gan.generator_update(64)
            step += 1
        print(f"epoch {epoch} critic {d_loss:.3f} generator {g_loss:.3f} penalty {with_penalty}")


if __name__ == "__main__":
    main()
