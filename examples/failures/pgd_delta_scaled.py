"""Adversarial perturbation created with requires_grad=True and scaled on the same line: delta is not a leaf."""

import torch
from torch import nn

EXPECT = {"kind": "nonleaf-grad", "line": ("cut", "CUT")}


def attack(model, x, y, eps=0.1, steps=3):
    delta = torch.empty_like(x).uniform_(-1, 1).requires_grad_(True) * eps  # CUT
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x + delta), y)
        loss.backward()
        delta = (delta + 0.03 * delta.grad.sign()).clamp(-eps, eps).detach().requires_grad_()
    return delta


if __name__ == "__main__":
    torch.manual_seed(0)
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    attack(classifier, torch.rand(5, 1, 4, 4), torch.randint(0, 4, (5,)))
