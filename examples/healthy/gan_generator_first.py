"""A generator and a critic in turn; the generator's backward adds to the critic's gradients, which are cleared after."""

import torch
from sklearn.datasets import load_iris
from torch import nn

EXPECT = {"kind": None}


def main():
    torch.manual_seed(0)
    real = torch.tensor(load_iris(return_X_y=True)[0]).float()
    generator = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 4))
    critic = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    makes = torch.optim.Adam(generator.parameters(), lr=1e-3)
    judges = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(20):
        makes.zero_grad()
        nn.functional.softplus(-critic(generator(torch.randn(32, 2)))).mean().backward()
        makes.step()
        for p in critic.parameters():
            if p.grad is not None:
                p.grad.data.zero_()
        fake = generator(torch.randn(32, 2)).detach()
        loss = nn.functional.softplus(critic(fake)) + nn.functional.softplus(-critic(real[torch.randint(150, (32,))]))
        loss.mean().backward()
        judges.step()


if __name__ == "__main__":
    main()
