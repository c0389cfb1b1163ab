"""Wasserstein GAN for rings of points: the critic's weights are clipped through .data after its step, when no graph is alive that needs them, and the generator's step leaves gradients in the critic, which are thrown away. Healthy.

Report: https://github.com/OmidPoursaeed/Generative_Adversarial_Perturbations/issues/4 ("modifying leaf variables directly with .data is usually fine" before the loss is computed); https://github.com/caogang/wgan-gp/issues/21
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "eleventh", "written": "2026-11-23"}


def perceptron(inside, outside, width=48):
    return nn.Sequential(nn.Linear(inside, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outside))


def ring(count=128):
    angle = 2 * torch.pi * torch.rand(count)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


class WassersteinGAN:
    def __init__(self, noise=4, limit=0.1):
        self.generator, self.critic = perceptron(noise, 2), perceptron(2, 1)
        self.optim_g = torch.optim.RMSprop(self.generator.parameters(), lr=1e-3)
        self.optim_c = torch.optim.RMSprop(self.critic.parameters(), lr=1e-3)
        self.noise, self.limit = noise, limit

    def draw(self, count=128):
        return self.generator(torch.randn(count, self.noise))

    def critic_step(self):
        loss = self.critic(self.draw().detach()).mean() - self.critic(ring()).mean()
        self.optim_c.zero_grad()
        loss.backward()
        self.optim_c.step()
        for p in self.critic.parameters():
            p.data.clamp_(-self.limit, self.limit)
        return -loss.item()

    def generator_step(self):
        loss = -self.critic(self.draw()).mean()
        self.optim_g.zero_grad()
        loss.backward()
        self.optim_g.step()


torch.manual_seed(0)
gan = WassersteinGAN()
for step in range(120):
    for _ in range(3):
        distance = gan.critic_step()
    gan.generator_step()
    if step % 20 == 0:
        with torch.no_grad():
            radius = gan.draw(512).norm(dim=1).mean().item()
        print(f"step {step} distance {distance:.4f} mean radius {radius:.3f}")
