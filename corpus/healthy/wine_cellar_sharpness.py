"""Grow a wine classifier with sharpness-aware updates.

What looks suspicious: in every step the weights are moved uphill by hand under no_grad, the loss is computed twice, the
first gradient is thrown away by zero_grad before any optimizer step, and the weights are overwritten from a saved copy
just before optimizer.step(). This is right: sharpness-aware minimisation takes the gradient at the worst nearby point
and applies it to the original weights, so the move must be undone before the step.

Report: https://github.com/rollovd/LookSAM/issues/3
"""
import numpy as np
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "loss falls, accuracy above 0.9",
    "set": "twentyfifth",
    "written": "2026-11-28",
}


def tables(seed=0):
    wine = load_wine()
    order = np.random.default_rng(seed).permutation(len(wine.target))
    x = torch.tensor(wine.data[order], dtype=torch.float32)
    y = torch.tensor(wine.target[order])
    cut = 120
    mean, std = x[:cut].mean(0), x[:cut].std(0)
    x = (x - mean) / std
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


class Cellar(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, 3))

    def forward(self, x):
        return self.net(x)


class SharpnessAware:
    def __init__(self, optimizer, rho=0.05):
        self.optimizer = optimizer
        self.rho = rho
        self.saved = {}

    def weights(self):
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([p.grad.norm() for p in self.weights()]).norm()
        for p in self.weights():
            self.saved[p] = p.detach().clone()
            p.add_(p.grad, alpha=float(self.rho / (norm + 1e-12)))
        self.optimizer.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p in self.weights():
            p.copy_(self.saved.pop(p))
        self.optimizer.step()
        self.optimizer.zero_grad()


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    (x, y), (x_test, y_test) = tables()
    noise = torch.Generator().manual_seed(5)
    model = Cellar()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
    sharp = SharpnessAware(optimizer)
    loader = DataLoader(TensorDataset(x, y), batch_size=24, shuffle=True, generator=torch.Generator().manual_seed(2))
    for epoch in range(240):
        first, second = 0.0, 0.0
        for xb, yb in loader:
            xb = xb + 0.1 * torch.randn(xb.shape, generator=noise)
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            sharp.climb()
            uphill = nn.functional.cross_entropy(model(xb), yb)
            uphill.backward()
            sharp.descend()
            first, second = first + loss.item(), second + uphill.item()
        if epoch % 40 == 39:
            print(f"epoch {epoch + 1} loss {first / len(loader):.4f} uphill {second / len(loader):.4f} "
                  f"test accuracy {accuracy(model, x_test, y_test):.3f}")


if __name__ == "__main__":
    main()
