"""A classifier of wines with a partial_fit method like scikit-learn's: each call makes its own AdamW for one update."""
import torch
from sklearn.datasets import load_wine
from torch import nn

EXPECT = {
    "class": "optimizer-made-anew", "framework": "plain", "kind": "optimizer-made-anew", "line": ("optimizer", "ANEW"),
    "set": "ledger", "written": "2026-11-27",
}


class Sommelier(nn.Module):
    def __init__(self, features, classes, rate=2e-3):
        super().__init__()
        self.rate = rate
        self.net = nn.Sequential(nn.Linear(features, 32), nn.SiLU(), nn.Linear(32, classes))

    def partial_fit(self, x, y):
        solver = torch.optim.AdamW(self.net.parameters(), lr=self.rate)  # ANEW
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        solver.step()
        solver.zero_grad()
        return loss.item()


torch.manual_seed(0)
wine = load_wine()
x = torch.tensor(wine.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
y = torch.tensor(wine.target)
taster = Sommelier(x.shape[1], 3)
for season in range(8):
    for pick in torch.randperm(len(x)).split(16):
        loss = taster.partial_fit(x[pick], y[pick])
    print(season, loss)
