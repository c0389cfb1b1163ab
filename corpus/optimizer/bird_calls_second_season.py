"""Recognise bird species from call features; new species arrive in a second season and the output layer grows.

Report: https://github.com/ContinualAI/avalanche/pull/1609
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "parameter-not-in-optimizer",
    "line": ("replaced", "HERE"),
    "plain": "the loss of the second season is large and does not fall at all, the new species are hardly ever recognised",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

FEATURES = 40
FIRST, ADDED = 6, 6


class CallBook:
    def __init__(self, seed=11):
        rng = np.random.default_rng(seed)
        self.prototypes = rng.normal(0, 1.0, size=(FIRST + ADDED, 3, FEATURES))

    def sample(self, species, per_species, seed):
        rng = np.random.default_rng(seed)
        calls, labels = [], []
        for s in species:
            kind = rng.integers(0, 3, size=per_species)
            calls.append(self.prototypes[s, kind] + 0.9 * rng.normal(size=(per_species, FEATURES)))
            labels.append(np.full(per_species, s))
        return TensorDataset(torch.tensor(np.concatenate(calls), dtype=torch.float32),
                             torch.tensor(np.concatenate(labels)))


class SpeciesNet(nn.Module):
    def __init__(self, species, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, species)

    def grow(self, added):
        old = self.head
        new = nn.Linear(old.in_features, old.out_features + added)
        with torch.no_grad():
            new.weight[:old.out_features].copy_(old.weight)
            new.bias[:old.out_features].copy_(old.bias)
        self.head = new  # HERE

    def forward(self, x):
        return self.head(self.body(x))


class Season:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def run(self, name, data, epochs, seed):
        loader = DataLoader(data, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(seed))
        for epoch in range(epochs):
            total = 0.0
            for x, y in loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
            if epoch % 5 == 4:
                print(f"{name} epoch {epoch + 1} loss {total / len(loader):.3f}")


@torch.no_grad()
def accuracy(model, data):
    x, y = data.tensors
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    book = CallBook()
    model = SpeciesNet(FIRST)
    optimizer = torch.optim.Adam([
        {"params": model.body.parameters(), "lr": 1e-3},
        {"params": model.head.parameters(), "lr": 3e-3},
    ])
    season = Season(model, optimizer)
    old, added = range(FIRST), range(FIRST, FIRST + ADDED)

    season.run("first season", book.sample(old, 300, seed=1), epochs=20, seed=1)
    print(f"old species {accuracy(model, book.sample(old, 100, seed=2)):.3f}")

    model.grow(ADDED)
    model.body.requires_grad_(False)
    mixed = torch.utils.data.ConcatDataset([book.sample(old, 300, seed=1), book.sample(added, 300, seed=3)])
    season.run("second season", mixed, epochs=20, seed=2)
    print(f"old species {accuracy(model, book.sample(old, 100, seed=2)):.3f}")
    print(f"new species {accuracy(model, book.sample(added, 100, seed=4)):.3f}")


if __name__ == "__main__":
    main()
