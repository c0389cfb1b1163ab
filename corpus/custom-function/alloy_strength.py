"""Predict the strength of alloys from their composition with a deep residual network; the branches get damped gradients.

Report: https://github.com/linkedin/Liger-Kernel/issues/254
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "gradient-overwritten",
    "line": ("mutated", "HERE"),
    "plain": "the loss falls slowly and stays high, the first layers hardly change, no error appears",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

ELEMENTS = 12
BLOCKS = 10


def make_alloys(n, seed):
    rng = np.random.default_rng(99)
    pair = rng.normal(0, 1.0, size=(ELEMENTS, ELEMENTS))
    direction = rng.normal(0, 1.0, size=(ELEMENTS, 3))
    rng = np.random.default_rng(seed)
    parts = rng.dirichlet(np.full(ELEMENTS, 0.6), size=n)
    strength = np.einsum("ni,ij,nj->n", parts, pair, parts) * 2.0
    strength = strength + np.sin(2.5 * parts @ direction).sum(axis=1)
    strength = strength + 0.05 * rng.standard_normal(n)
    x = (parts - 1.0 / ELEMENTS) * 6.0
    return torch.tensor(x, dtype=torch.float32), torch.tensor(strength, dtype=torch.float32)


class Damped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.mul_(ctx.factor), None  # HERE


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        return x + Damped.apply(self.net(x), 0.3)


class StrengthNet(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.first = nn.Linear(ELEMENTS, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(BLOCKS)])
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        return self.last(self.blocks(self.first(x))).squeeze(-1)


@torch.no_grad()
def explained(model, x, y):
    return 1.0 - ((model(x) - y).pow(2).mean() / y.var()).item()


def main():
    torch.manual_seed(1)
    x, y = make_alloys(3000, seed=0)
    x_val, y_val = make_alloys(800, seed=1)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(0))
    model = StrengthNet()
    start = model.first.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(24):
        total = 0.0
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch % 4 == 3:
            moved = (model.first.weight.detach() - start).norm().item()
            print(f"epoch {epoch + 1} loss {total / len(loader):.4f} explained {explained(model, x_val, y_val):.3f} "
                  f"first layer moved {moved:.3f}")


if __name__ == "__main__":
    main()
