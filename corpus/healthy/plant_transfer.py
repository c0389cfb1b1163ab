"""Faults of machines in plant A (labelled) and plant B (not labelled): domain-adversarial training with a reversal layer.

Looks suspicious: the domain loss soon lies near 0.69 and does not fall, although it is added with a plus sign and its head gets
gradients, and the gradient is multiplied by a negative number on the way back. It is right: the features are trained so that
the plants cannot be told apart, and the accuracy in plant B grows well above that of training without the domain head.
Follows https://github.com/fungtion/DANN_py3/issues/12
"""
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "nothing is wrong",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

FAULTS = 4
N_INPUTS = 16


def plant(n, seed, place):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(21).normal(size=(FAULTS, 8)) * 1.3
    y = rng.integers(0, FAULTS, size=n)
    cause = centres[y] + 0.8 * rng.normal(size=(n, 8))
    site = rng.normal(size=(n, 8))
    if place == 0:
        site[:, :FAULTS] = 1.5 * np.eye(FAULTS)[y] + 0.5 * site[:, :FAULTS]
    else:
        site[:, :FAULTS] = 1.5 * (np.arange(FAULTS) == 2) + 0.5 * site[:, :FAULTS]
    return torch.tensor(np.concatenate([cause, site], axis=1), dtype=torch.float32), torch.tensor(y)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Adapted(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(N_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.fault = nn.Linear(width, FAULTS)
        self.domain = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, strength=0.0):
        h = self.features(x)
        return self.fault(h), self.domain(Reverse.apply(h, strength)).squeeze(-1)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    good = (model(x)[0].argmax(1) == y).float().mean().item()
    model.train()
    return good


def train(limit, epochs):
    torch.manual_seed(4)
    a, b = plant(3000, 0, 0), plant(3000, 1, 1)
    held_a, held_b = plant(1000, 2, 0), plant(1000, 3, 1)
    model = Adapted()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    source = DataLoader(TensorDataset(*a), batch_size=64, shuffle=True, drop_last=True)
    target = DataLoader(TensorDataset(b[0]), batch_size=64, shuffle=True, drop_last=True)
    for epoch in range(epochs):
        strength = limit * (2 / (1 + math.exp(-5 * epoch / epochs)) - 1)
        sums = [0.0, 0.0]
        for (xa, ya), (xb,) in zip(source, target):
            fault, place_a = model(xa, strength)
            _, place_b = model(xb, strength)
            place = torch.cat([place_a, place_b])
            which = torch.cat([torch.zeros(len(xa)), torch.ones(len(xb))])
            fault_loss = F.cross_entropy(fault, ya)
            domain_loss = F.binary_cross_entropy_with_logits(place, which)
            opt.zero_grad()
            (fault_loss + domain_loss).backward()
            opt.step()
            sums[0] += fault_loss.item()
            sums[1] += domain_loss.item()
        if epoch % 4 == 3:
            print(f"limit {limit} epoch {epoch} fault loss {sums[0] / len(source):.4f} domain loss {sums[1] / len(source):.4f} "
                  f"accuracy A {accuracy(model, *held_a):.3f} B {accuracy(model, *held_b):.3f}")


def main():
    train(limit=0.0, epochs=20)
    train(limit=1.0, epochs=20)


if __name__ == "__main__":
    main()
