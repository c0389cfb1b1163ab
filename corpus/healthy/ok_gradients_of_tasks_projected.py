"""Healthy: two tasks on one trunk with projected gradients; each loss goes backward by itself, the graph is retained for the next one and freed by the last, gradients are copied, cleared and written back by hand; heads of the other task have none.

Report it resembles: https://github.com/WeiChengTseng/Pytorch-PCGrad/issues/2 (memory of PCGrad, which retains the graph for the backward of every task)
"""
import random

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ninth", "written": "2026-11-23"}


class PCGrad:
    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def backward(self, losses):
        grads, has = [], []
        for i, loss in enumerate(losses):
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward(retain_graph=i < len(losses) - 1)
            has.append([p.grad is not None for p in self.parameters])
            grads.append([p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in self.parameters])
        merged = self.project(grads)
        for i, p in enumerate(self.parameters):
            p.grad = merged[i] if any(h[i] for h in has) else None

    def project(self, grads):
        flat = [torch.cat([g.flatten() for g in task]) for task in grads]
        out = []
        for i, own in enumerate(flat):
            own, others = own.clone(), [j for j in range(len(flat)) if j != i]
            random.shuffle(others)
            for j in others:
                inner = own @ flat[j]
                if inner < 0:
                    own -= inner / flat[j].norm() ** 2 * flat[j]
            out.append(own)
        total = torch.stack(out).sum(0)
        return [piece.view_as(p) for piece, p in zip(total.split([p.numel() for p in self.parameters]), self.parameters)]

    def step(self):
        self.optimizer.step()


class MultiTask(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.digit, self.ink = nn.Linear(4 * width, 10), nn.Linear(4 * width, 4)

    def forward(self, x):
        h = self.trunk(x)
        return self.digit(h), self.ink(h)


torch.manual_seed(0)
random.seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
ink = F.avg_pool2d(images, 4).flatten(1)
model = MultiTask()
optimizer = PCGrad(torch.optim.Adam(model.parameters(), lr=3e-3))
for step in range(120):
    pick = torch.randint(0, len(images), (48,))
    digit, amount = model(images[pick])
    losses = [F.cross_entropy(digit, labels[pick]), 5 * F.mse_loss(amount, -ink[pick])]
    optimizer.backward(losses)
    optimizer.step()
    if step % 20 == 0:
        print(step, *[loss.item() for loss in losses])
