"""A classifier with an information bottleneck: the code keeps what tells the classes apart, and loses the rest."""
import torch
from sklearn.datasets import load_wine
from torch import nn

EXPECT = {
    "kind": None,
    "plain": "the divergence is small, and the accuracy high",
    "set": "classes",
    "written": "2026-11-28",
}


class Bottleneck(nn.Module):
    def __init__(self, features=13, codes=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 2 * codes))
        self.classes = nn.Linear(codes, 3)

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        divergence = 0.5 * (mean.pow(2) + logvar.exp() - logvar - 1).sum(dim=1).mean()
        return self.classes(code), divergence


def main():
    torch.manual_seed(0)
    data = load_wine()
    x, y = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)
    x = (x - x.mean(0)) / x.std(0)
    model = Bottleneck()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(300):
        chosen = torch.randperm(len(x))[:48]
        scores, divergence = model(x[chosen])
        loss = nn.functional.cross_entropy(scores, y[chosen]) + 0.01 * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        scores, divergence = model(x)
    print(f"accuracy {(scores.argmax(1) == y).float().mean():.3f} divergence {divergence:.2f}")


if __name__ == "__main__":
    main()
