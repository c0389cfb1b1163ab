"""Which ingredients go together: embeddings of ingredients with bounded length are trained on pairs from recipes; after
a few epochs a term is added that pulls every ingredient to the centre of its kitchen.

Report: https://github.com/pytorch/pytorch/issues/26596
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "inplace",
    "line": ("saved", "cause"),
    "plain": "After several good epochs backward raises 'one of the variables needed for gradient computation has been modified by an inplace operation'.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

ITEMS, KITCHENS, DIM = 240, 6, 24
KITCHEN_FROM = 4


def make_pairs(n, rng):
    kitchen = rng.integers(0, KITCHENS, ITEMS)
    left = rng.integers(0, ITEMS, n)
    label = rng.random(n) < 0.5
    right = np.empty(n, dtype=int)
    for i in range(n):
        pool = np.flatnonzero((kitchen == kitchen[left[i]]) == label[i])
        right[i] = rng.choice(pool)
    return kitchen, left, right, label.astype("float32")


class PairModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, max_norm=1.5)
        self.centres = nn.Parameter(0.1 * torch.randn(KITCHENS, DIM))
        self.gain = nn.Parameter(torch.tensor(2.0))

    def kitchen_scores(self):
        return self.items.weight @ self.centres.t()  # <-- cause

    def forward(self, left, right):
        return self.gain * (self.items(left) * self.items(right)).sum(-1)


class Objective:
    def __init__(self, model, kitchen):
        self.model, self.kitchen = model, torch.tensor(kitchen)

    def __call__(self, left, right, label, epoch):
        if epoch < KITCHEN_FROM:
            return nn.functional.binary_cross_entropy_with_logits(self.model(left, right), label)
        scores = self.model.kitchen_scores()
        logits = self.model(left, right)
        pair = nn.functional.binary_cross_entropy_with_logits(logits, label)
        return pair + 0.2 * nn.functional.cross_entropy(scores, self.kitchen)


def main():
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    kitchen, left, right, label = make_pairs(6000, rng)
    data = TensorDataset(torch.tensor(left), torch.tensor(right), torch.tensor(label))
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = PairModel()
    objective = Objective(model, kitchen)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(10):
        total, right_count = 0.0, 0
        for a, b, y in loader:
            loss = objective(a, b, y, epoch)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(a)
            with torch.no_grad():
                right_count += ((model(a, b) > 0).float() == y).sum().item()
        print(f"epoch {epoch}  loss {total / len(data):.4f}  accuracy {right_count / len(data):.3f}")


if __name__ == "__main__":
    main()
