"""MAML on sine regression; the inner update writes through .data on a deep copy, so the query loss has no path to the meta-parameters and they never move.

Report: https://github.com/KanishJebaMathewM/Truxify/issues/13118 (MAML inner loop `param.data -=` detaches the graph, the meta-model never trains)
"""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "gradient-not-used", "line": ("cut", "CAUSE"),
    "what": "the inner step changes a deep copy in place through .data, so the query loss does not reach the meta-model's parameters (their grad stays None); build adapted weights as p - lr * g and run them with functional_call",
    "set": "nineteenth", "written": "2026-11-27",
}


class SineNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))

    def forward(self, x):
        return self.layers(x)


class SineTasks:
    def sample(self, k):
        amp = 0.5 + 2.0 * torch.rand(1)
        phase = math.pi * torch.rand(1)
        x = torch.rand(2 * k, 1) * 10 - 5
        y = amp * torch.sin(x + phase)
        return x[:k], y[:k], x[k:], y[k:]


class MAML:
    def __init__(self, model, inner_lr=0.02, outer_lr=2e-3):
        self.model = model
        self.inner_lr = inner_lr
        self.outer_opt = torch.optim.Adam(model.parameters(), lr=outer_lr)

    def adapt(self, x, y, steps=1):
        adapted = copy.deepcopy(self.model)  # OTHER
        for _ in range(steps):
            loss = F.mse_loss(adapted(x), y)
            grads = torch.autograd.grad(loss, adapted.parameters(), create_graph=True)
            for param, grad in zip(adapted.parameters(), grads):
                param.data -= self.inner_lr * grad  # CAUSE
        return adapted

    def meta_step(self, tasks, meta_batch=4, k=10):
        self.outer_opt.zero_grad()
        meta_loss = 0.0
        for _ in range(meta_batch):
            xs, ys, xq, yq = tasks.sample(k)
            learner = self.adapt(xs, ys)
            meta_loss = meta_loss + F.mse_loss(learner(xq), yq)
        meta_loss = meta_loss / meta_batch
        meta_loss.backward()
        self.outer_opt.step()
        return meta_loss.item()


def main():
    torch.manual_seed(3)
    tasks = SineTasks()
    maml = MAML(SineNet())
    start = [p.detach().clone() for p in maml.model.parameters()]
    recent = []
    for it in range(300):
        recent.append(maml.meta_step(tasks))
        if (it + 1) % 50 == 0:
            moved = sum((p - s).abs().sum().item() for p, s in zip(maml.model.parameters(), start))
            print(f"iter {it + 1:3d}  query loss {sum(recent) / len(recent):.3f}  meta weights moved {moved:.3f}")
            recent = []


if __name__ == "__main__":
    main()
