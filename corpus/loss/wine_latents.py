"""A conditional autoencoder of wines writes the divergence by hand and draws with sample(): its encoder learns the prior."""
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.distributions import Normal

EXPECT = {
    "kind": "sample-without-gradient", "line": ("cut", "DRAWN"), "set": "ledger", "written": "2026-11-29",
    "plain": "the reconstruction stays at the mean wine of each class",
}


class Wines(nn.Module):
    def __init__(self, size, classes=3, codes=5):
        super().__init__()
        self.classes = nn.Embedding(classes, 6)
        self.body = nn.Sequential(nn.Linear(size + 6, 40), nn.Tanh())
        self.to_mean, self.to_logvar = nn.Linear(40, codes), nn.Linear(40, codes)
        self.decoder = nn.Sequential(nn.Linear(codes + 6, 40), nn.Tanh(), nn.Linear(40, size))

    def forward(self, wine, kind):
        given = self.classes(kind)
        hidden = self.body(torch.cat([wine, given], 1))
        mean, logvar = self.to_mean(hidden), self.to_logvar(hidden)
        code = self.draw(mean, logvar)
        return self.decoder(torch.cat([code, given], 1)), mean, logvar

    def draw(self, mean, logvar):
        return Normal(mean, torch.exp(0.5 * logvar)).sample()  # DRAWN


def main():
    torch.manual_seed(0)
    wines, kinds = load_wine(return_X_y=True)
    wines, kinds = torch.tensor(wines, dtype=torch.float32), torch.tensor(kinds)
    wines = (wines - wines.mean(0)) / wines.std(0)
    model = Wines(wines.shape[1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for epoch in range(30):
        for batch in torch.randperm(len(wines)).split(32):
            out, mean, logvar = model(wines[batch], kinds[batch])
            error = (out - wines[batch]).pow(2).sum(1).mean()
            divergence = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(1).mean()
            loss = error + min(1.0, epoch / 10) * divergence
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"error {error.item():.2f}, divergence {divergence.item():.4f}")


if __name__ == "__main__":
    main()
