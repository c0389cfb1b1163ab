"""Profiles of pottery coded with a vector-quantized autoencoder.

Looks suspicious: the codebook is in no parameter group, never has a gradient, and is written in place in the forward
pass; the gradient skips the nearest-neighbour step. It is right: the codebook is a buffer that follows a moving mean of
the encoder's outputs, and the straight-through step hands the decoder's gradient to the encoder.

Asked in public: https://github.com/lucidrains/vector-quantize-pytorch/issues/40
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "The reconstruction error falls and the codes are used evenly.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

POINTS, DIM, CODES = 32, 8, 32


def make_profiles(n, rng):
    h = np.linspace(0, 1, POINTS)[None]
    kind = rng.integers(0, 4, (n, 1))
    belly = rng.uniform(0.2, 0.8, (n, 1))
    r = 0.5 + 0.4 * np.exp(-((h - belly) / (0.15 + 0.05 * kind)) ** 2) - 0.2 * kind / 3 * h
    return torch.tensor(r + rng.normal(0, 0.01, r.shape), dtype=torch.float32)


class Codebook(nn.Module):
    def __init__(self, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(CODES, DIM))
        self.register_buffer("count", torch.ones(CODES))
        self.register_buffer("mean", self.codes.clone())
        self.register_buffer("ready", torch.tensor(False))

    @torch.no_grad()
    def follow(self, z, index):
        one_hot = nn.functional.one_hot(index, CODES).to(z)
        self.count.lerp_(one_hot.sum(0), 1 - self.decay)
        self.mean.lerp_(one_hot.t() @ z, 1 - self.decay)
        n = self.count.sum()
        smooth = (self.count + 1e-3) / (n + CODES * 1e-3) * n
        self.codes.copy_(self.mean / smooth[:, None])
        idle = self.count < 0.05
        if idle.any():
            pick = torch.randint(0, len(z), (int(idle.sum()),))
            self.codes[idle], self.mean[idle], self.count[idle] = z[pick], z[pick], 1.0

    def forward(self, z):
        if self.training and not self.ready:
            self.codes.copy_(z.detach()[torch.randint(0, len(z), (CODES,))])
            self.mean.copy_(self.codes)
            self.ready.fill_(True)
        index = torch.cdist(z.detach(), self.codes).argmin(1)
        q = self.codes[index]
        if self.training:
            self.follow(z.detach(), index)
        commit = nn.functional.mse_loss(z, q)
        return z + (q - z).detach(), commit, index


class ProfileCoder(nn.Module):
    def __init__(self, width=64, slots=4):
        super().__init__()
        self.slots = slots
        self.encoder = nn.Sequential(nn.Linear(POINTS, width), nn.ReLU(), nn.Linear(width, slots * DIM))
        self.book = Codebook()
        self.decoder = nn.Sequential(nn.Linear(slots * DIM, width), nn.ReLU(), nn.Linear(width, POINTS))

    def forward(self, x):
        z = self.encoder(x).view(-1, DIM)
        q, commit, index = self.book(z)
        return self.decoder(q.view(len(x), -1)), commit, index


def main():
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    x, xv = make_profiles(2560, rng), make_profiles(400, rng)
    loader = DataLoader(TensorDataset(x), batch_size=64, shuffle=True)
    net = ProfileCoder()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(8):
        net.train()
        total = 0.0
        for (xb,) in loader:
            out, commit, _ = net(xb)
            loss = nn.functional.mse_loss(out, xb) + 0.1 * commit
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() / len(loader)
        net.eval()
        with torch.no_grad():
            out, _, index = net(xv)
        print(f"epoch {epoch}  loss {total:.5f}  validation {nn.functional.mse_loss(out, xv):.5f}  "
              f"codes used {index.unique().numel()}/{CODES}")


if __name__ == "__main__":
    main()
