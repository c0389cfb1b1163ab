"""First-order MAML: learners copied deeply, inner updates by hand, and gradients copied to the meta model."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}



def make_dialect(g):
    """One speaker: how vowel length (x) turns into pitch (y)."""
    height = torch.rand(1, generator=g) * 3 + 0.5
    phase = torch.rand(1, generator=g) * 3.14159

    def sample(count):
        x = torch.rand(count, 1, generator=g) * 8 - 4
        return x, height * torch.sin(x + phase)

    return sample


def build(width=48):
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def adapt(learner, x, y, steps, rate):
    for _ in range(steps):
        loss = F.mse_loss(learner(x), y)
        grads = torch.autograd.grad(loss, list(learner.parameters()))
        with torch.no_grad():
            for p, d in zip(learner.parameters(), grads):
                p.sub_(rate * d)
    return learner


def meta_step(model, opt, g, speakers=8, inner=3, rate=0.02):
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    total = 0.0
    for _ in range(speakers):
        sample = make_dialect(g)
        learner = adapt(copy.deepcopy(model), *sample(10), steps=inner, rate=rate)
        x, y = sample(20)
        loss = F.mse_loss(learner(x), y)
        grads = torch.autograd.grad(loss, list(learner.parameters()))
        for p, d in zip(model.parameters(), grads):
            p.grad.add_(d, alpha=1.0 / speakers)
        total += loss.item() / speakers
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    return total


def examine(model, speakers=60, inner=3, rate=0.02):
    g = torch.Generator().manual_seed(99)
    before, after = 0.0, 0.0
    for _ in range(speakers):
        sample = make_dialect(g)
        learner = copy.deepcopy(model)
        support, (x, y) = sample(10), sample(50)
        with torch.no_grad():
            before += F.mse_loss(learner(x), y).item() / speakers
        adapt(learner, *support, steps=inner, rate=rate)
        with torch.no_grad():
            after += F.mse_loss(learner(x), y).item() / speakers
    return before, after


def main():
    torch.manual_seed(14)
    g = torch.Generator().manual_seed(15)
    model = build()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    print("new speakers: before %.3f  after adapting %.3f" % examine(model))
    for step in range(900):
        loss = meta_step(model, opt, g)
        if step % 150 == 0:
            print(f"step {step:4d}  query loss {loss:.3f}")
    print("new speakers: before %.3f  after adapting %.3f" % examine(model))


if __name__ == "__main__":
    main()
