"""Meta-learning (MAML) of an initialisation for sine curves; the meta-model never changes.

Report: https://github.com/KanishJebaMathewM/Truxify/issues/13118 (param.data -= in the inner loop detaches the adaptation, the query loss has no path back to the meta-model and its gradients stay None)

Effect: the loss after adaptation stays where it was and the parameters of the meta-model are exactly the initial ones.
"""
import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "gradient-not-used", "line": ("cut", "CAUSE"),
    "what": "The inner update writes through .data on a copy of the model, so the query loss has no gradient path to the meta-model; keep the adapted weights as tensors of the graph (torch.func.functional_call).",
    "set": "eighteenth", "written": "2026-11-27",
}


class MetaLearner:
    def __init__(self, inner_lr=0.03, meta_lr=2e-3, inner_steps=2):
        self.model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
        self.inner_lr, self.inner_steps = inner_lr, inner_steps
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=meta_lr)

    def adapt(self, x, y):
        adapted = copy.deepcopy(self.model)  # OTHER
        for _ in range(self.inner_steps):
            loss = F.mse_loss(adapted(x), y)
            grads = torch.autograd.grad(loss, adapted.parameters(), create_graph=True)
            for param, grad in zip(adapted.parameters(), grads):
                param.data -= self.inner_lr * grad  # CAUSE
        return adapted

    def meta_step(self, tasks):
        self.optimizer.zero_grad()
        total = 0.0
        for xs, ys, xq, yq in tasks:
            adapted = self.adapt(xs, ys)
            total = total + F.mse_loss(adapted(xq), yq)
        total = total / len(tasks)
        total.backward()
        self.optimizer.step()
        return total.item()


def sine_task(gen, shots=10):
    amp = 0.5 + 2.0 * torch.rand(1, generator=gen)
    phase = math.pi * torch.rand(1, generator=gen)
    x = torch.rand(2 * shots, 1, generator=gen) * 10 - 5
    y = amp * torch.sin(x + phase)
    return x[:shots], y[:shots], x[shots:], y[shots:]


if __name__ == "__main__":
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(3)
    learner = MetaLearner()
    start = [p.detach().clone() for p in learner.model.parameters()]
    history = []
    for it in range(200):
        history.append(learner.meta_step([sine_task(gen) for _ in range(4)]))
        if (it + 1) % 40 == 0:
            print(f"iteration {it + 1} query loss {sum(history[-40:]) / 40:.3f}")
    moved = max((p - s).abs().max().item() for p, s in zip(learner.model.parameters(), start))
    print(f"largest change of the meta-parameters {moved:.6f}")
