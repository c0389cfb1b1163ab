"""Padding_idx=0 in the embeddings of the pairs although code 0 is a real and the commonest category: its vector gets no
gradient and never changes.

Report: kind of mistake known to the author, no particular link: nn.Embedding(padding_idx=0) together with a label
encoder that starts at 0
"""

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "part-never-learns",
    "line": ("defined", "HERE"),
    "plain": "test R2 0.897, train loss 0.0449; without padding_idx: test R2 0.985, train loss 0.0062",
    "set": "twentyninth",
    "written": "2026-11-29",
}


COLUMNS = {"maker": 12, "layout": 6, "region": 9, "heating": 4}


def sales(n, seed):
    """Log price of second-hand caravans; codes come from a label encoder, the commonest first."""
    rng = np.random.default_rng(seed)
    world = np.random.default_rng(1234)
    cats = []
    for size in COLUMNS.values():
        p = np.arange(1, size + 1) ** -1.3
        cats.append(rng.choice(size, n, p=p / p.sum()))
    cats = np.stack(cats, 1)
    factors = [world.normal(size=(size, 3)) for size in COLUMNS.values()]
    y = sum(world.normal(size=size)[cats[:, i]] * 0.5 for i, size in enumerate(COLUMNS.values()))
    for i in range(4):
        for j in range(i + 1, 4):
            y = y + 0.9 * (factors[i][cats[:, i]] * factors[j][cats[:, j]]).sum(1)
    age = rng.uniform(0, 1, n)
    length = rng.uniform(-1, 1, n)
    y = y - 1.2 * age + 0.6 * length + 0.15 * rng.normal(size=n)
    nums = np.stack([age, length], 1)
    return torch.from_numpy(cats), torch.tensor(nums, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class PairModel(nn.Module):
    """Linear part plus dot products between all pairs of category vectors."""

    def __init__(self, sizes, numeric, dim=6):
        super().__init__()
        self.wide = nn.ModuleList(nn.Embedding(s, 1) for s in sizes)
        self.deep = nn.ModuleList(nn.Embedding(s, dim, padding_idx=0) for s in sizes)  # HERE
        self.numeric = nn.Linear(numeric, 1)
        for table in self.deep:
            with torch.no_grad():
                table.weight.mul_(0.3)

    def forward(self, cats, nums):
        linear = sum(e(cats[:, i]) for i, e in enumerate(self.wide)) + self.numeric(nums)
        v = torch.stack([e(cats[:, i]) for i, e in enumerate(self.deep)], dim=1)
        pairs = 0.5 * (v.sum(1).pow(2) - v.pow(2).sum(1)).sum(1)
        return linear.squeeze(-1) + pairs


class PriceRegressor:
    def __init__(self, epochs=10, lr=1e-2, batch_size=64):
        self.epochs, self.lr, self.batch_size = epochs, lr, batch_size

    def fit(self, cats, nums, y, check=None):
        self.mean, self.std = y.mean(), y.std()
        self.model = PairModel(list(COLUMNS.values()), nums.shape[1])
        target = (y - self.mean) / self.std
        loader = DataLoader(TensorDataset(cats, nums, target), self.batch_size, shuffle=True)
        opt = torch.optim.AdamW(self.model.parameters(), lr=self.lr, weight_decay=1e-4)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.epochs * len(loader))
        for epoch in range(self.epochs):
            total = 0.0
            for c, x, t in loader:
                loss = nn.functional.smooth_l1_loss(self.model(c, x), t)
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                total += loss.item()
            if check is not None:
                print(f"epoch {epoch} loss {total / len(loader):.4f} test R2 {self.score(*check):.3f}")
        return self

    @torch.no_grad()
    def predict(self, cats, nums):
        return self.model(cats, nums) * self.std + self.mean

    def score(self, cats, nums, y):
        left = (self.predict(cats, nums) - y).pow(2).sum()
        return (1 - left / (y - y.mean()).pow(2).sum()).item()


if __name__ == "__main__":
    torch.manual_seed(0)
    train, test = sales(4000, 1), sales(1000, 2)
    PriceRegressor().fit(*train, check=test)
