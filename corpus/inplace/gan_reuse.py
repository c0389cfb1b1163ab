"""GAN on digits with two optimizers. Later phase shares the fake batch between D and G."""
import time
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "CULPRIT", "step": 100,
    "set": "late_longer", "written": "2026-11-25",
}


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class GanTrainer:
    def __init__(self, share_after=100):
        torch.manual_seed(5)
        self.G = nn.Sequential(mlp(32, 544, 544, 64), nn.Sigmoid())
        self.D = mlp(64, 544, 544, 1)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=2e-4, betas=(0.5, 0.99))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=2e-4, betas=(0.5, 0.99))
        self.data = torch.tensor(load_digits().data, dtype=torch.float32) / 16.0
        self.share_after = share_after
        self.n = 128

    def real_batch(self):
        return self.data[torch.randint(0, len(self.data), (self.n,))]

    def separate_step(self):
        ones, zeros = torch.ones(self.n, 1), torch.zeros(self.n, 1)
        fake = self.G(torch.randn(self.n, 32))
        d_loss = bce(self.D(self.real_batch()), ones) + bce(self.D(fake.detach()), zeros)
        self.opt_d.zero_grad()
        d_loss.backward()
        self.opt_d.step()

        g_loss = bce(self.D(fake), ones)
        self.opt_g.zero_grad()
        g_loss.backward()
        self.opt_g.step()
        return d_loss.item(), g_loss.item()

    def shared_step(self):
        ones, zeros = torch.ones(self.n, 1), torch.zeros(self.n, 1)
        fake = self.G(torch.randn(self.n, 32))
        fake_score = self.D(fake)
        d_loss = bce(self.D(self.real_batch()), ones) + bce(fake_score, zeros)
        self.opt_d.zero_grad()
        d_loss.backward(retain_graph=True)
        self.opt_d.step()  # CULPRIT

        g_loss = bce(fake_score, ones)
        self.opt_g.zero_grad()
        g_loss.backward()
        self.opt_g.step()
        return d_loss.item(), g_loss.item()

    def fit(self, steps=400):
        t0 = time.time()
        for it in range(steps):
            d, g = self.separate_step() if it < self.share_after else self.shared_step()
            if it % 50 == 49:
                print(f"it {it} d {d:.3f} g {g:.3f} {(time.time() - t0) / (it + 1) * 1e3:.1f} ms/it")


GanTrainer().fit()
