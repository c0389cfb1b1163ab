"""Telling genuine from forged pen strokes: a Siamese network with contrastive loss on pairs of stroke curves.

After https://github.com/adambielski/siamese-triplet/issues/18 (derivatives suddenly nan in some iteration).
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "SOURCE"),
    "plain": "the loss falls for some epochs, then is nan from one step on; every pair is then called forged",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}

POINTS = 24


class Writers:
    """Each writer has a curve of low harmonics; every visit at the counter gives that curve with a little shake."""

    def __init__(self, writers, visits, seed):
        rng = np.random.default_rng(seed)
        self.count, self.visits = writers, visits
        self.amp = rng.normal(size=(writers, 2, 5, 1)) / np.arange(1, 6)[:, None]
        self.phase = rng.uniform(0, 2 * np.pi, size=(writers, 2, 5, 1))
        self.grid = np.arange(1, 6)[:, None] * np.linspace(0, 2 * np.pi, POINTS)

    def curve(self, writer, visit):
        rng = np.random.default_rng([writer, visit])
        amp = self.amp[writer] + 0.12 * rng.normal(size=(2, 5, 1))
        phase = self.phase[writer] + 0.15 * rng.normal(size=(2, 5, 1))
        return torch.tensor((amp * np.sin(self.grid + phase)).sum(axis=1), dtype=torch.float32)


class Pairs(Dataset):
    """Half of the pairs come from one writer, half from two; drawn anew each epoch."""

    def __init__(self, source, n, seed):
        self.source, self.n = source, n
        self.rng = np.random.default_rng(seed)
        self.redraw()

    def redraw(self):
        self.index = []
        for i in range(self.n):
            first, other = self.rng.choice(self.source.count, size=2, replace=False)
            second = first if i % 2 == 0 else other
            left, right = self.rng.integers(self.source.visits, size=2)
            self.index.append((int(first), int(left), int(second), int(right)))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        first, left, second, right = self.index[i]
        return self.source.curve(first, left), self.source.curve(second, right), torch.tensor(float(first == second))


class Embedder(nn.Module):
    def __init__(self, width=32, out=16):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(2, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
                                  nn.Conv1d(width, width, 3, padding=1), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(width * POINTS // 2, 64), nn.ReLU(), nn.Linear(64, out))

    def forward(self, x):
        return self.body(x)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.5):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, same):
        distance = (a - b).pow(2).sum(dim=1).sqrt()  # SOURCE
        near = same * distance.pow(2)
        far = (1 - same) * (self.margin - distance).clamp(min=0).pow(2)
        return 0.5 * (near + far).mean()


@torch.no_grad()
def verify(model, pairs, threshold=0.75):
    a, b, same = zip(*[pairs[i] for i in range(len(pairs))])
    distance = (model(torch.stack(a)) - model(torch.stack(b))).norm(dim=1)
    called = (distance < threshold).float()
    same = torch.stack(same)
    return (called == same).float().mean().item(), called.mean().item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fresh = Pairs(Writers(writers=30, visits=4000, seed=4), 1000, seed=5)
    pairs = Pairs(Writers(writers=60, visits=4000, seed=3), 1280, seed=19)
    loader = DataLoader(pairs, batch_size=64, shuffle=True)
    model, criterion = Embedder(), ContrastiveLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, weight_decay=1e-5)
    for epoch in range(16):
        total = 0.0
        for a, b, same in loader:
            loss = criterion(model(a), model(b), same)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        right, genuine = verify(model, fresh)
        print(f"epoch {epoch + 1:2d}  loss {total / len(loader):.4f}  new writers: right {right:.3f}, called genuine {genuine:.3f}")
        pairs.redraw()


if __name__ == "__main__":
    main()
