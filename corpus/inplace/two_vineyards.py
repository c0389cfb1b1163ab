"""Wines from two vineyards with different instruments: features that serve the classifier and do not betray the vineyard.

Follows the public report https://blog.csdn.net/odbej/article/details/125158288
"""
import itertools

import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "inplace",
    "line": ("mutated", "cause"),
    "plain": "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation, at the first batch after the warm-up epochs",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

WARM = 6


def vineyards(seed):
    data = load_wine()
    x = torch.tensor(data.data, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    y = torch.tensor(data.target)
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=random)
    x, y = x[order], y[order]
    near, far = x[:90], x[90:]
    tilt = torch.eye(13) + 0.15 * torch.randn(13, 13, generator=random)
    far = far @ tilt + 0.5 * torch.randn(13, generator=random)
    return TensorDataset(near, y[:90]), TensorDataset(far, y[90:])


class Tasters(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.label = nn.Linear(width, 3)
        self.judge = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


class Adversary:
    def __init__(self, model, weight):
        self.model, self.weight = model, weight
        main = itertools.chain(model.features.parameters(), model.label.parameters())
        self.main = torch.optim.Adam(main, lr=2e-3)
        self.other = torch.optim.Adam(model.judge.parameters(), lr=1e-3)
        self.label_loss, self.judge_loss = nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss()

    def plain_step(self, near, y):
        loss = self.label_loss(self.model.label(self.model.features(near)), y)
        self.main.zero_grad()
        loss.backward()
        self.main.step()
        return loss.item(), 0.0

    def step(self, near, y, far):
        z_near, z_far = self.model.features(near), self.model.features(far)
        verdict = self.model.judge(torch.cat([z_near, z_far])).squeeze(1)
        origin = torch.cat([torch.ones(len(near)), torch.zeros(len(far))])
        told = self.judge_loss(verdict, origin)
        self.other.zero_grad()
        told.backward(retain_graph=True)
        self.other.step()  # <-- cause
        fooled = self.judge_loss(verdict, 1 - origin)  # <-- cause
        loss = self.label_loss(self.model.label(z_near), y) + self.weight * fooled
        self.main.zero_grad()
        loss.backward()
        self.main.step()
        return loss.item(), told.item()


@torch.no_grad()
def accuracy(model, rows):
    x, y = rows.tensors
    return (model.label(model.features(x)).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(16)
    torch.set_num_threads(1)
    near_rows, far_rows = vineyards(16)
    near_loader = DataLoader(near_rows, batch_size=10, shuffle=True)
    far_loader = DataLoader(far_rows, batch_size=10, shuffle=True, drop_last=True)
    model = Tasters()
    training = Adversary(model, weight=0.1)
    for epoch in range(20):
        losses = []
        for (near, y), (far, _) in zip(near_loader, itertools.cycle(far_loader)):
            losses.append(training.plain_step(near, y) if epoch < WARM else training.step(near, y, far))
        loss, told = (sum(column) / len(losses) for column in zip(*losses))
        print(f"epoch {epoch}: loss {loss:.4f}  judge {told:.4f}  near {accuracy(model, near_rows):.3f}  "
              f"far {accuracy(model, far_rows):.3f}")


if __name__ == "__main__":
    main()
