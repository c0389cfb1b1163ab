"""DCGAN loop without detach: D's backward frees G's graph, then the generator loss goes through the same fake."""

import torch
from torch import nn

EXPECT = {"kind": "second-backward", "line": ("reused", "REUSED")}


def train(epochs=2):
    torch.manual_seed(0)
    G = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
    D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    opt_g, opt_d = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(D.parameters(), 1e-3)
    bce = nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        real, noise = torch.randn(8, 2), torch.randn(8, 3)
        fake = G(noise)
        d_loss = bce(D(real), torch.ones(8, 1)) + bce(D(fake), torch.zeros(8, 1))
        opt_d.zero_grad()
        d_loss.backward()  # FREED
        opt_d.step()
        g_loss = bce(D(fake), torch.ones(8, 1))  # REUSED
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()


if __name__ == "__main__":
    train()
