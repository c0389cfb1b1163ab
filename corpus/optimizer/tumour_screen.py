"""Benign or malignant from thirty cell measurements, wide network on few patients, keeps the best of all epochs.

The score that is reported for the best weights is worse than the best score seen on the way.
Follows https://github.com/WenjieDu/PyPOTS/issues/667
"""
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "state-not-copied",
    "line": ("cause", "HERE"),
    "plain": "after loading the best weights the validation loss is that of the last, overfitted epoch",
    "set": "twentyfifth",
    "written": "2026-11-28",
}


def load():
    data = load_breast_cancer()
    x = torch.tensor(data.data, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    y = torch.tensor(data.target).float()
    g = torch.Generator().manual_seed(8)
    order = torch.randperm(len(y), generator=g)
    noise = torch.rand(len(y), generator=g) < 0.08
    few, check, test = order[:90], order[90:290], order[290:]
    seen = torch.where(noise, 1 - y, y)
    return (TensorDataset(x[few], seen[few]), TensorDataset(x[check], y[check]), TensorDataset(x[test], y[test]))


class Screen(nn.Module):
    def __init__(self, n_inputs, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Best:
    def __init__(self, patience):
        self.patience = patience
        self.loss = float("inf")
        self.epoch = -1
        self.weights = None

    def look(self, epoch, loss, model):
        if loss < self.loss:
            self.loss, self.epoch = loss, epoch
            self.weights = model.state_dict()  # HERE
        return epoch - self.epoch >= self.patience


@torch.no_grad()
def measure(model, data):
    model.eval()
    x, y = data.tensors
    logits = model(x)
    model.train()
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y).item()
    return loss, ((logits > 0) == (y > 0.5)).float().mean().item()


def train(model, data, check, best):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=15, shuffle=True)
    for epoch in range(120):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        loss, good = measure(model, check)
        if epoch % 5 == 0:
            print(f"epoch {epoch} train {total / len(loader):.4f} check loss {loss:.4f} accuracy {good:.3f}")
        if best.look(epoch, loss, model):
            break
    return epoch


def main():
    torch.manual_seed(1)
    data, check, test = load()
    model = Screen(data.tensors[0].shape[1])
    best = Best(patience=40)
    last = train(model, data, check, best)
    model.load_state_dict(best.weights)
    print(f"stopped after epoch {last}; best epoch {best.epoch} with check loss {best.loss:.4f}")
    loss, good = measure(model, check)
    print(f"with the best weights: check loss {loss:.4f} accuracy {good:.3f}")
    loss, good = measure(model, test)
    print(f"with the best weights: test loss {loss:.4f} accuracy {good:.3f}")


if __name__ == "__main__":
    main()
