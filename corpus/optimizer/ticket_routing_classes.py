"""Route support tickets (numeric features) to teams; later two more teams are founded.

Report: https://runebook.dev/en/docs/pytorch/generated/torch.optim.adafactor/torch.optim.Adafactor.add_param_group
"""
import torch
import torch.nn.functional as F
from sklearn.datasets import make_classification
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "parameter-not-in-optimizer",
    "line": ("optimizer", "MADE"),
    "plain": "accuracy on the first teams is fine; after the growth the loss falls slowly and the new teams are recognised badly",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}


def load_tickets(seed=0):
    x, y = make_classification(n_samples=6000, n_features=24, n_informative=12, n_redundant=4, n_classes=7,
                               n_clusters_per_class=2, class_sep=1.6, flip_y=0.01, random_state=seed)
    x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    y = torch.tensor(y)
    return (x[:4800], y[:4800]), (x[4800:], y[4800:])


def subset(data, classes):
    keep = torch.isin(data[1], torch.tensor(list(classes)))
    return TensorDataset(data[0][keep], data[1][keep])


class Router(nn.Module):
    def __init__(self, n_features, n_teams, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, n_teams)

    def forward(self, x):
        return self.head(self.body(x))

    def grow(self, extra):
        old = self.head
        new = nn.Linear(old.in_features, old.out_features + extra)
        with torch.no_grad():
            new.weight[:old.out_features] = old.weight
            new.bias[:old.out_features] = old.bias
        self.head = new


@torch.no_grad()
def accuracy(model, dataset):
    model.eval()
    x, y = dataset.tensors
    result = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return result


def train(model, optimizer, dataset, tests, epochs, title):
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch % 3 == 2:
            shown = "  ".join(f"{name} {accuracy(model, test):.3f}" for name, test in tests.items())
            print(f"{title} epoch {epoch:2d}  loss {total / len(loader):.4f}  {shown}")


def main():
    torch.manual_seed(0)
    train_data, test_data = load_tickets()
    first, later = range(5), range(5, 7)
    model = Router(24, len(first))
    optimizer = torch.optim.SGD([  # MADE
        {"params": model.body.parameters(), "lr": 0.01},
        {"params": model.head.parameters(), "lr": 0.05},
    ], momentum=0.9, weight_decay=1e-4)

    train(model, optimizer, subset(train_data, first), {"first teams": subset(test_data, first)}, 15, "five teams")

    model.grow(len(later))
    for group in optimizer.param_groups:
        group["lr"] *= 0.2
    tests = {"first teams": subset(test_data, first), "new teams": subset(test_data, later)}
    train(model, optimizer, subset(train_data, range(7)), tests, 15, "seven teams")


if __name__ == "__main__":
    main()
