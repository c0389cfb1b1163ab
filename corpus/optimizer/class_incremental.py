"""Class-incremental learning: the classifier grows when a new task with new classes arrives.

Source: https://github.com/ACEsuit/mace/issues/525 (growing in a running job: online-ml/deep-river#169)
"""
import argparse

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "d", "kind": "parameter-not-in-optimizer", "parameters": ["head.weight", "head.bias"],
    "optimizer_marker": "OPTIMIZER", "step": 240, "module": "head", "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class IncrementalNet(nn.Module):
    def __init__(self, d_in, hidden, n_classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(d_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))

    @torch.no_grad()
    def grow(self, n_new):
        old = self.head
        self.head = nn.Linear(old.in_features, old.out_features + n_new)
        self.head.weight[:old.out_features].copy_(old.weight)
        self.head.bias[:old.out_features].copy_(old.bias)


class TaskStream:
    def __init__(self, d=20, classes_per_task=4, steps_per_task=240, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.k, self.steps = classes_per_task, steps_per_task
        self.centers = torch.randn(12, d, generator=self.g)

    def __iter__(self):
        for t in range(2):
            for i in range(self.steps):
                y = torch.randint(0, (t + 1) * self.k, (48,), generator=self.g)
                x = self.centers[y] + 0.9 * torch.randn(48, self.centers.shape[1], generator=self.g)
                yield t, x, y


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hidden", type=int, default=48)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--momentum", type=float, default=0.9)
    return ap.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    stream = TaskStream()
    model = IncrementalNet(20, args.hidden, stream.k)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)  # OPTIMIZER
    task = 0
    for step, (t, x, y) in enumerate(stream):
        if t != task:
            model.grow(stream.k)
            task = t
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 60 == 0:
            acc = (logits.argmax(1) == y).float().mean().item()
            print(f"task {task} step {step} loss {loss.item():.3f} acc {acc:.2f}")


if __name__ == "__main__":
    main()
