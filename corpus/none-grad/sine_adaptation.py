"""Meta-learns an initialisation for sine regression with an inner adaptation step; the meta-parameters never move.
Report: https://github.com/KanishJebaMathewM/Truxify/issues/13118 (MAML inner loop works through .data, the query loss has no path back
to the model, .grad stays None and the meta-model never trains)
Effect: the query loss after adaptation stays at 3.1 (1.8 in the mended copy) and the weights are bit for bit those of the start.
"""
import math

import torch
import torch.nn as nn
from torch.func import functional_call

EXPECT = {
    "framework": "plain", "kind": "none-grad", "line": ("cut", "CAUSE"),
    "what": "the fast weights are copied through .data, so the query loss is cut off from the model and the meta-optimizer never gets a gradient",
    "set": "twentieth", "written": "2026-11-27",
}


class SineTask:
    def __init__(self, gen):
        self.amp = 1.0 + 3.0 * torch.rand(1, generator=gen)
        self.phase = math.pi * torch.rand(1, generator=gen)
        self.gen = gen

    def sample(self, n):
        x = torch.rand(n, 1, generator=self.gen) * 10 - 5
        return x, self.amp * torch.sin(x + self.phase)


class MetaLearner:
    def __init__(self, inner_lr=0.02, inner_steps=2, meta_lr=3e-3):
        self.net = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
        self.inner_lr = inner_lr
        self.inner_steps = inner_steps
        self.meta_opt = torch.optim.Adam(self.net.parameters(), lr=meta_lr)
        self.criterion = nn.MSELoss()

    def adapt(self, x, y):
        fast = {k: p.data.clone().requires_grad_(True) for k, p in self.net.named_parameters()}  # CAUSE
        for _ in range(self.inner_steps):
            loss = self.criterion(functional_call(self.net, fast, (x,)), y)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {k: w - self.inner_lr * g for (k, w), g in zip(fast.items(), grads)}
        return fast

    def meta_step(self, tasks):
        self.meta_opt.zero_grad()
        total = 0.0
        for task in tasks:
            xs, ys = task.sample(10)
            xq, yq = task.sample(15)
            fast = self.adapt(xs, ys)
            total = total + self.criterion(functional_call(self.net, fast, (xq,)), yq)
        total = total / len(tasks)
        total.backward()
        self.meta_opt.step()
        return total.item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)
    learner = MetaLearner()
    history = []
    for it in range(120):
        history.append(learner.meta_step([SineTask(gen) for _ in range(5)]))
        if (it + 1) % 30 == 0:
            print(f"iteration {it + 1}: query loss {sum(history[-30:]) / 30:.3f}")


if __name__ == "__main__":
    main()
