"""Second-order MAML on sine waves with torch.func.functional_call and learned inner rates.

Right because: the inner step uses create_graph=True so the outer loss differentiates through
it; the adapted weights are plain tensors passed to functional_call, never written into the
module; only the initial weights and the per-tensor inner rates are optimized.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def sample_task(gen, shots=10):
    amp = torch.rand(1, generator=gen) * 4 + 0.5
    phase = torch.rand(1, generator=gen) * math.pi
    x = torch.rand(2 * shots, 1, generator=gen) * 10 - 5
    y = amp * torch.sin(x + phase)
    return (x[:shots], y[:shots]), (x[shots:], y[shots:])


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))

    def forward(self, x):
        return self.body(x)


class Meta(nn.Module):
    def __init__(self):
        super().__init__()
        self.learner = Learner()
        names = [n for n, _ in self.learner.named_parameters()]
        self.rates = nn.ParameterDict({n.replace(".", "_"): nn.Parameter(torch.tensor(0.03)) for n in names})

    def adapt(self, support, steps, create_graph):
        x, y = support
        weights = dict(self.learner.named_parameters())
        for _ in range(steps):
            loss = F.mse_loss(functional_call(self.learner, weights, (x,)), y)
            grads = torch.autograd.grad(loss, tuple(weights.values()), create_graph=create_graph)
            weights = {n: w - self.rates[n.replace(".", "_")] * g for (n, w), g in zip(weights.items(), grads)}
        return weights

    def query_loss(self, task, steps=1, create_graph=True):
        support, (qx, qy) = task
        return F.mse_loss(functional_call(self.learner, self.adapt(support, steps, create_graph), (qx,)), qy)


def evaluate(meta, tasks):
    total = 0.0
    for task in tasks:
        weights = meta.adapt(task[0], 3, create_graph=False)
        with torch.no_grad():
            qx, qy = task[1]
            total += F.mse_loss(functional_call(meta.learner, weights, (qx,)), qy).item()
    return total / len(tasks)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(2)
    meta = Meta()
    held_out = [sample_task(torch.Generator().manual_seed(1000 + i)) for i in range(50)]
    opt = torch.optim.Adam([
        {"params": meta.learner.parameters(), "lr": 3e-3},
        {"params": meta.rates.parameters(), "lr": 1e-3},
    ])
    print("adapted error before", evaluate(meta, held_out))
    for it in range(500):
        opt.zero_grad()
        loss = torch.stack([meta.query_loss(sample_task(gen)) for _ in range(4)]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(meta.parameters(), 10.0)
        opt.step()
        if it % 100 == 99:
            print(f"iter {it + 1} outer {loss.item():.3f} adapted error {evaluate(meta, held_out):.3f}")


if __name__ == "__main__":
    main()
