"""A folding function keeps the signs of its input in a global dictionary.

From step 150 on, a second view goes through it before the backward. After pytorch/pytorch#16947.
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "state-outside-ctx", "kind": "wrong-backward", "line": ("cause", "HERE"), "check": None, "set": "eighteen_classes",
    "written": "2026-11-29",
}

torch.manual_seed(6)
CONSISTENCY_FROM = 150
_cache = {}


class Fold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        _cache["sign"] = torch.sign(x)  # HERE
        return x.abs()

    @staticmethod
    def backward(ctx, grad):
        return grad * _cache["sign"]


class ColonyNet(nn.Module):
    def __init__(self, inputs=12, width=64, classes=5):
        super().__init__()
        self.inp = nn.Linear(inputs, width)
        self.mid = nn.Linear(width, 32)
        self.out = nn.Linear(32, classes)

    def forward(self, x):
        h = Fold.apply(self.inp(x))
        return self.out(F.gelu(self.mid(h)))


def colony_data(n, generator):
    """Counts on a transect; the colony type depends on products that mirror symmetrically."""
    x = torch.randn(n, 12, generator=generator)
    scores = torch.stack(
        [x[:, i] * x[:, 11 - i] + 0.5 * x[:, 5 - i].abs() * x[:, 6 + i].abs() for i in range(5)], 1
    )
    return x, scores.argmax(1)


@torch.no_grad()
def evaluate(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    g = torch.Generator().manual_seed(0)
    x, y = colony_data(4000, g)
    xv, yv = colony_data(1000, g)
    accelerator = Accelerator(cpu=True)
    model = ColonyNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    step = 0
    while step < 700:
        for xb, yb in loader:
            logits = model(xb)
            loss = F.cross_entropy(logits, yb)
            if step >= CONSISTENCY_FROM:
                mirrored = model(xb.flip(1))
                loss = loss + 0.5 * F.mse_loss(mirrored, logits.detach())
            opt.zero_grad()
            accelerator.backward(loss)
            opt.step()
            step += 1
            if step % 100 == 0 or step == CONSISTENCY_FROM:
                print(f"step {step}  loss {loss.item():.3f}  acc {evaluate(model, xv, yv):.3f}")
            if step == 700:
                break


if __name__ == "__main__":
    main()
