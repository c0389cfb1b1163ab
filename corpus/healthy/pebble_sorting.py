"""Sharpness-aware updates of two passes that hold BatchNorm's momentum, and averaged weights."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}


torch.manual_seed(14)


class FixedEdges(nn.Module):
    def __init__(self, n=12):
        super().__init__()
        kernels = torch.randn(n, 1, 3, 3)
        self.register_buffer("kernels", kernels - kernels.mean(dim=(2, 3), keepdim=True))

    def forward(self, x):
        return F.relu(F.conv2d(x, self.kernels, padding=1))


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.edges = FixedEdges()
        self.mix = nn.Sequential(
            nn.Conv2d(12, 24, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.bins = nn.Linear(24 * 16, 10)

    def forward(self, x):
        return self.bins(self.mix(self.edges(x)))


class SharpnessAware:
    def __init__(self, model, base, rho=0.05):
        self.model, self.base, self.rho = model, base, rho
        self.kept = {}

    def params(self):
        return [p for p in self.model.parameters() if p.grad is not None]

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([p.grad.norm() for p in self.params()]).norm()
        for p in self.params():
            self.kept[p] = p.detach().clone()
            p.add_(p.grad, alpha=float(self.rho / (norm + 1e-12)))
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, old in self.kept.items():
            p.copy_(old)
        self.base.step()
        self.base.zero_grad()
        self.kept.clear()


def hold_statistics(model, hold):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 0.0 if hold else 0.1


@torch.no_grad()
def refresh_statistics(model, x, batch=128):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.reset_running_stats()
            m.momentum = None
    model.train()
    for i in range(0, len(x), batch):
        model(x[i : i + batch])
    model.eval()


@torch.no_grad()
def accuracy(model, x, y):
    was = model.training
    model.eval()
    acc = (model(x).argmax(-1) == y).float().mean().item()
    model.train(was)
    return acc


def main(steps=420, average_from=300):
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    train_x, train_y, test_x, test_y = x[:1300], y[:1300], x[1300:], y[1300:]

    model = Sorter()
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    sam = SharpnessAware(model, base)
    averaged, n_averaged = copy.deepcopy(model), 0
    for step in range(1, steps + 1):
        pick = torch.randint(0, len(train_x), (64,))
        loss = F.cross_entropy(model(train_x[pick]), train_y[pick])
        loss.backward()
        sam.climb()
        hold_statistics(model, True)
        F.cross_entropy(model(train_x[pick]), train_y[pick]).backward()
        hold_statistics(model, False)
        sam.descend()
        if step >= average_from and step % 10 == 0:
            n_averaged += 1
            with torch.no_grad():
                for a, p in zip(averaged.parameters(), model.parameters()):
                    a.lerp_(p, 1.0 / n_averaged)
        if step % 60 == 0:
            print(f"step {step} loss {loss.item():.4f} test acc {accuracy(model, test_x, test_y):.3f}")
    refresh_statistics(averaged, train_x)
    print(f"averaged weights ({n_averaged}) test acc {accuracy(averaged, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
