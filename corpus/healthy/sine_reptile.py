"""Reptile meta-learning on sine waves: the fast copy is trained by its own SGD, the slow weights get the difference as gradient. Healthy.

Looks odd: gradients written by hand, a fresh copy and a fresh inner optimizer for every task, no backward() on the slow
model at all. All of it is the algorithm; the error after 8 inner steps falls.
"""
import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"framework": "plain", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}


class Wave:
    def __init__(self, gen):
        u = torch.rand(2, generator=gen)
        self.amp, self.phase, self.gen = 0.5 + 2.0 * u[0].item(), math.pi * u[1].item(), gen

    def draw(self, n):
        x = 10 * torch.rand(n, 1, generator=self.gen) - 5
        return x, self.amp * torch.sin(x + self.phase)


def build():
    return nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))


def adapt(slow, wave, steps, lr=0.02, n=20):
    fast = copy.deepcopy(slow)
    inner = torch.optim.SGD(fast.parameters(), lr=lr)
    x, y = wave.draw(n)
    for _ in range(steps):
        loss = F.mse_loss(fast(x), y)
        inner.zero_grad()
        loss.backward()
        inner.step()
    return fast


def evaluate(slow):
    gen = torch.Generator().manual_seed(77)
    total = 0.0
    for _ in range(20):
        wave = Wave(gen)
        fast = adapt(slow, wave, 8)
        x, y = wave.draw(100)
        with torch.no_grad():
            total += F.mse_loss(fast(x), y).item()
    return total / 20


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    slow = build()
    meta = torch.optim.Adam(slow.parameters(), lr=5e-3)
    for it in range(60):
        meta.zero_grad()
        fast = adapt(slow, Wave(gen), 5)
        for p, q in zip(slow.parameters(), fast.parameters()):
            p.grad = p.detach() - q.detach()
        meta.step()
        if it % 15 == 0 or it == 59:
            print(f"iteration {it} error after adapting {evaluate(slow):.4f}")


if __name__ == "__main__":
    main()
