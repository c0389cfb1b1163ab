"""Learn a small code for handwritten numerals with a variational autoencoder.

Report: https://github.com/zdebruine/MMVAE/pull/19
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "posterior-collapsed",
    "line": ("cause", "HERE"),
    "plain": "the codes explain nothing of held-out digits, although the loss falls",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

PIXELS = 64


class NumeralVAE(nn.Module):
    def __init__(self, code=8, width=128):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(PIXELS, width), nn.ReLU(), nn.Linear(width, 2 * code))
        self.dec = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, PIXELS))

    def forward(self, x):
        mean, logvar = self.enc(x).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.dec(z), mean, logvar


class Elbo(nn.Module):
    def forward(self, output, mean, logvar, x):
        match = nn.functional.mse_loss(output, x)  # HERE
        kl = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(dim=1).mean()
        return match + kl, match, kl


@torch.no_grad()
def explained(model, x):
    mean, _ = model.enc(x).chunk(2, dim=1)
    rest = (model.dec(mean) - x).pow(2).sum()
    return 1.0 - (rest / (x - x.mean(dim=0)).pow(2).sum()).item()


def load():
    pixels = torch.tensor(load_digits().data, dtype=torch.float32)
    pixels = (pixels - pixels.mean()) / pixels.std()
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    return pixels[order[:1500]], pixels[order[1500:]]


def main():
    torch.manual_seed(4)
    train, hold = load()
    loader = DataLoader(TensorDataset(train), batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(1))
    model, criterion = NumeralVAE(), Elbo()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(60):
        sums = torch.zeros(3)
        for (x,) in loader:
            output, mean, logvar = model(x)
            loss, match, kl = criterion(output, mean, logvar, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sums += torch.tensor([loss.item(), match.item(), kl.item()])
        if epoch % 10 == 9:
            total, match, kl = (sums / len(loader)).tolist()
            print(f"epoch {epoch + 1} loss {total:.4f} match {match:.4f} kl {kl:.5f} "
                  f"explained on held-out {explained(model, hold):.3f}")


if __name__ == "__main__":
    main()
