"""Enamel tiles. The class that trains casts the weights to the dtype that it is given, bfloat16, and most small updates are rounded away (workofart/ml-by-hand pull request 85)."""
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "weights cast to bfloat16, dtype in a variable", "framework": "plain", "kind": "update-rounds-away", "line": ("cause", "HERE"),
    "set": "twentyeighth", "written": "2026-11-29",
}


class TileNet(nn.Module):
    def __init__(self, hidden=96, classes=10):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)])
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x)


def load_tiles():
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32)
    x = (x - x[:1400].mean()) / x[:1400].std()
    y = torch.tensor(digits.target)
    return x[:1400], y[:1400], x[1400:], y[1400:]


class Glazer:
    def __init__(self, model, lr=4e-3, momentum=0.9, dtype=torch.bfloat16):
        self.model = model.to(dtype)  # HERE
        self.dtype = dtype
        self.opt = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=momentum)

    def predict(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(x.to(next(self.model.parameters()).dtype)).float()

    def step(self, x, y):
        loss = F.cross_entropy(self.predict(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self, x, y, steps=900, batch=64):
        g = torch.Generator().manual_seed(5)
        running = 0.0
        for step in range(1, steps + 1):
            pick = torch.randint(len(x), (batch,), generator=g)
            running += self.step(x[pick], y[pick])
            if step % 100 == 0:
                print(f"step {step:4d}  loss {running / 100:.4f}")
                running = 0.0
        return self

    @torch.no_grad()
    def score(self, x, y):
        return (self.predict(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(7)
    x, y, xt, yt = load_tiles()
    glazer = Glazer(TileNet()).fit(x, y)
    print(f"train {glazer.score(x, y):.3f}  held out {glazer.score(xt, yt):.3f}")


if __name__ == "__main__":
    main()
