"""Sharpness-aware updates with accumulation, averaged weights swapped in and out, and a pruning mask."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}


torch.manual_seed(52)


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params = list(params)
        self.base = base
        self.rho = rho
        self.shift = []

    @torch.no_grad()
    def climb(self):
        norm = torch.norm(torch.stack([p.grad.norm() for p in self.params if p.grad is not None]))
        self.shift = []
        for p in self.params:
            if p.grad is None:
                self.shift.append(None)
                continue
            e = p.grad * (self.rho / (norm + 1e-12))
            p.add_(e)
            self.shift.append(e)

    @torch.no_grad()
    def descend(self):
        for p, e in zip(self.params, self.shift):
            if e is not None:
                p.sub_(e)
        self.base.step()

    def zero_grad(self):
        self.base.zero_grad()


class RunningAverage:
    def __init__(self, model, decay=0.98):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            if v.dtype.is_floating_point:
                self.shadow[k].lerp_(v, 1 - self.decay)
            else:
                self.shadow[k].copy_(v)

    def swap(self, model):
        current = {k: v.detach().clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.shadow)
        self.shadow = current


class ThreadNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 24, 3, padding=1)
        self.norm = nn.GroupNorm(4, 24)
        self.conv = nn.Conv2d(24, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 16, 10)
        self.register_buffer("mask", (torch.rand(10, 32 * 16) > 0.3).float())

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(self.conv(x)).flatten(1)
        return F.linear(x, self.fc.weight * self.mask, self.fc.bias)


def evaluate(model, ema, x, y):
    ema.swap(model)
    model.eval()
    with torch.no_grad():
        acc = model(x).argmax(1).eq(y).float().mean().item()
    model.train()
    ema.swap(model)
    return acc


def main():
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(data.target)
    order = torch.randperm(len(x))
    train, test = order[:1440], order[1440:]
    model = ThreadNet()
    model.stem.weight.requires_grad_(False)
    base = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.08, momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(base, T_0=60, T_mult=2)
    sam = SAM(model.parameters(), base)
    ema = RunningAverage(model)
    step = 0
    for epoch in range(6):
        for idx in train[torch.randperm(len(train))].split(48):
            parts = idx.split(24)
            for climb in (True, False):
                total = 0.0
                for part in parts:
                    loss = F.cross_entropy(model(x[part]), y[part]) / len(parts)
                    loss.backward()
                    total += loss.item()
                if climb:
                    sam.climb()
                    sam.zero_grad()
            sam.descend()
            sam.zero_grad()
            sched.step()
            ema.update(model)
            step += 1
        print(f"step {step:4d}  loss {total:.4f}  averaged acc {evaluate(model, ema, x[test], y[test]):.3f}")


if __name__ == "__main__":
    main()
