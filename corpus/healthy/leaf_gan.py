"""Trains a GAN on pairs of leaf lengths and widths with a least-squares loss and two optimizers; nothing goes wrong.

The fake is detached only in the critic's step, and what the generator's step leaves in the critic's gradients is cleared before the critic is trained again.
"""
import torch
import torch.nn as nn

EXPECT = {"framework": "plain", "kind": None, "set": "eighteenth", "written": "2026-11-27"}


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, o))


def leaves(n):
    a, b = torch.randn(2, n, 1)
    return torch.cat([2 + 0.8 * a, 1 + 0.6 * a + 0.2 * b], 1)


class LeafGAN:
    def __init__(self, latent=4):
        self.latent = latent
        self.g, self.d = mlp(latent, 2), mlp(2, 1)
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=2e-3, betas=(0.5, 0.9))

    def train_critic(self, real):
        fake = self.g(torch.randn(len(real), self.latent)).detach()
        loss = (self.d(real) - 1).pow(2).mean() + self.d(fake).pow(2).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def train_generator(self, n):
        fake = self.g(torch.randn(n, self.latent))
        loss = (self.d(fake) - 1).pow(2).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    gan = LeafGAN()
    for step in range(190):
        d_loss = gan.train_critic(leaves(256))
        g_loss = gan.train_generator(256)
        if (step + 1) % 38 == 0:
            with torch.no_grad():
                x = gan.g(torch.randn(800, gan.latent))
            print(f"step {step + 1} d {d_loss:.3f} g {g_loss:.3f} mean {x.mean(0).tolist()} std {x.std(0).tolist()} "
                  f"corr {torch.corrcoef(x.T)[0, 1].item():.2f}")


if __name__ == "__main__":
    main()
