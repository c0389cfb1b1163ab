"""Curves of tides: a mean over hours beside a divergence with a weight of 1/100, which the codes are worth."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "the error falls to that of the noise",
    "set": "classes",
    "written": "2026-11-28",
}
HOURS = 48


def tides(n, seed):
    generator = torch.Generator().manual_seed(seed)
    phase = torch.rand(n, 1, generator=generator) * 2 * math.pi
    size = 0.5 + torch.rand(n, 1, generator=generator)
    hours = torch.arange(HOURS) * (2 * math.pi / 12.4)
    return size * torch.sin(hours + phase) + 0.05 * torch.randn(n, HOURS, generator=generator)


class TideCodes(nn.Module):
    def __init__(self, codes=4, width=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(HOURS, width), nn.Tanh(), nn.Linear(width, 2 * codes))
        self.decoder = nn.Sequential(nn.Linear(codes, width), nn.Tanh(), nn.Linear(width, HOURS))

    def loss(self, x, beta):
        mean, logvar = self.encoder(x).chunk(2, dim=-1)
        code = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
        error = (self.decoder(code) - x).pow(2).mean()
        divergence = 0.5 * torch.sum(mean**2 + logvar.exp() - 1.0 - logvar, dim=-1).mean()
        return error + beta * divergence, error


def main():
    torch.manual_seed(2)
    loader = DataLoader(TensorDataset(tides(1280, 0)), batch_size=64, shuffle=True)
    model = TideCodes()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(30):
        beta = 0.01 * min(1.0, epoch / 12)
        for (x,) in loader:
            loss, error = model.loss(x, beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1} beta {beta:.2f} error {error.item():.4f}")


if __name__ == "__main__":
    main()
