"""A siamese network whose sine function keeps its input on the class.

It is applied four times before each backward. After pytorch/pytorch#16947.
"""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "state-outside-ctx", "kind": "wrong-backward", "line": ("cause", "HERE"), "check": None, "set": "eighteen_classes",
    "written": "2026-11-29",
}

torch.manual_seed(2)
SLANT = torch.randn(8, 24) / 8**0.5
POINTS, WRITERS = 24, 60


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        Sine.angle = x  # HERE
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.cos(Sine.angle)


class Embedder(nn.Module):
    def __init__(self, width=64, dim=16):
        super().__init__()
        self.inp = nn.Linear(POINTS, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, dim)
        nn.init.uniform_(self.inp.weight, -0.5, 0.5)
        nn.init.uniform_(self.mid.weight, -0.5, 0.5)

    def forward(self, x):
        h = Sine.apply(self.inp(x))
        return self.out(Sine.apply(self.mid(h)))


class Verifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = Embedder()
        self.judge = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, left, right):
        a = self.embed(left)
        b = self.embed(right)
        return self.judge((a - b).abs()).squeeze(-1)


def stroke_basis(generator):
    return torch.randn(WRITERS, POINTS, generator=generator)


def slants(n, generator):
    """Paper angle and pressure: strong, shared by all writers, without meaning."""
    return 0.9 * torch.randn(n, 8, generator=generator) @ SLANT


def pairs(basis, n, generator):
    who = torch.randint(0, WRITERS, (n,), generator=generator)
    same = torch.rand(n, generator=generator) < 0.5
    other = (who + torch.randint(1, WRITERS, (n,), generator=generator)) % WRITERS
    second = torch.where(same, who, other)
    left = basis[who] + slants(n, generator) + 0.3 * torch.randn(n, POINTS, generator=generator)
    right = basis[second] + slants(n, generator) + 0.3 * torch.randn(n, POINTS, generator=generator)
    return left, right, same.float()


@torch.no_grad()
def evaluate(model, basis, generator):
    left, right, same = pairs(basis, 2000, generator)
    return ((model(left, right) > 0) == (same > 0.5)).float().mean().item()


def main():
    g = torch.Generator().manual_seed(1)
    basis = stroke_basis(g)
    model = Verifier()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, 501):
        left, right, same = pairs(basis, 64, g)
        loss = F.binary_cross_entropy_with_logits(model(left, right), same)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            acc = evaluate(model, basis, torch.Generator().manual_seed(77))
            print(f"step {step}  loss {loss.item():.3f}  accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
