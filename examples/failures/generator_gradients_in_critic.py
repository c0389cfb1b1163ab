"""A small GAN on points: the critic is cleared after its step, so it also learns from the generator's loss."""

import torch
from torch import nn
from torch.nn.functional import softplus

EXPECT = {"kind": "foreign-gradient", "line": ("foreign", "GENERATOR_LOSS")}


def main():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(20):
        fake = generator(torch.randn(64, 4))
        for_generator.zero_grad()
        softplus(-critic(fake)).mean().backward()  # GENERATOR_LOSS
        for_generator.step()

        real = torch.randn(64, 2) + torch.tensor([2.0, 0.0])
        (softplus(-critic(real)).mean() + softplus(critic(fake.detach())).mean()).backward()
        for_critic.step()
        for_critic.zero_grad()


if __name__ == "__main__":
    main()
