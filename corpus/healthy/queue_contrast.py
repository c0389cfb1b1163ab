"""Trains a MoCo encoder on digit images with a momentum key encoder and a queue of old keys; healthy.

The key encoder is frozen on purpose and follows the query encoder, the queue holds detached keys of earlier batches, the learned logit
scale is clamped in place after each step.
"""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "nineteenth", "written": "2026-11-27"}


class MoCo(nn.Module):
    def __init__(self, dim=32, queue=512, m=0.99):
        super().__init__()
        self.query = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, dim), nn.BatchNorm1d(dim, affine=False))
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(8.0)))
        self.register_buffer("queue", F.normalize(torch.randn(queue, dim), dim=1))
        self.pointer, self.m = 0, m

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.mul_(self.m).add_(q, alpha=1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        end = self.pointer + len(keys)
        self.queue[self.pointer:end] = keys
        self.pointer = end % len(self.queue)

    def forward(self, view_q, view_k):
        q = F.normalize(self.query(view_q), dim=1)
        with torch.no_grad():
            self.momentum_update()
            k = F.normalize(self.key(view_k), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone().t()
        logits = torch.cat([positive, negative], 1) * self.logit_scale.exp()
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        return loss, k


def view(x):
    moved = torch.stack([torch.roll(x, (dy, dx), (2, 3)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)])
    moved = moved[torch.randint(0, 9, (len(x),)), torch.arange(len(x))]
    return moved * (torch.rand_like(x) > 0.1) + 0.1 * torch.randn_like(x)


@torch.no_grad()
def retrieval(model, x):
    model.eval()
    q = F.normalize(model.query(view(x)), dim=1)
    k = F.normalize(model.key(view(x)), dim=1)
    model.train()
    return ((q @ k.t()).argmax(1) == torch.arange(len(x))).float().mean().item()


def main():
    torch.manual_seed(0)
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    x = torch.tensor(digits.images, dtype=torch.float32)[order][:, None] / 16
    model = MoCo()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    print("start retrieval", round(retrieval(model, x[1200:1500]), 3))
    for step in range(240):
        batch = x[torch.randint(0, 1200, (64,))]
        loss, keys = model(view(batch), view(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.enqueue(keys)
        with torch.no_grad():
            model.logit_scale.clamp_(max=math.log(20.0))
        if step % 30 == 29:
            print(f"step {step + 1} loss {loss.item():.4f} scale {model.logit_scale.exp().item():.2f} retrieval {retrieval(model, x[1200:1500]):.3f}")


if __name__ == "__main__":
    main()
