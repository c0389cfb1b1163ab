"""The gate comes from chunk() and is squashed with the in-place sigmoid_(); autograd forbids in-place writes on the
views of a function that returns several views and the first backward pass is never reached.

Report: github.com/OpenNMT/OpenNMT-py issue 2303 and github.com/pytorch/pytorch issue 36403 (views of split and chunk
modified in place)
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "forward-error",
    "line": ("cause", "HERE"),
    "plain": "RuntimeError in the first forward as it is; next thread accuracy 0.779 with gate = gate.sigmoid()",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(19)
THREADS = 16


class GatedConv(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=2 * dilation, dilation=dilation)
        self.trim = 2 * dilation

    def forward(self, x):
        h = self.conv(x)[..., : -self.trim]
        value, gate = h.chunk(2, dim=1)
        gate.sigmoid_()  # HERE
        return x + value.tanh() * gate


class PatternModel(nn.Module):
    """Predicts the next thread of a woven row."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(THREADS, width)
        self.layers = nn.ModuleList(GatedConv(width, 2**i) for i in range(4))
        self.out = nn.Conv1d(width, THREADS, 1)

    def forward(self, ids):
        h = self.embed(ids).transpose(1, 2)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def woven_rows(n, length, generator):
    period = torch.randint(3, 8, (n, 1), generator=generator)
    motif = torch.randint(0, THREADS, (n, 8), generator=generator)
    position = torch.arange(length).expand(n, length) % period
    rows = motif.gather(1, position)
    slip = torch.rand(n, length, generator=generator) < 0.02
    return torch.where(slip, torch.randint(0, THREADS, (n, length), generator=generator), rows)


def train(model, steps, generator):
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 30) * 0.5 * (1 + math.cos(math.pi * s / steps))
    )
    for step in range(steps):
        rows = woven_rows(32, 32, generator)
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits[..., 10:], rows[:, 11:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}")


def main():
    g = torch.Generator().manual_seed(0)
    model = PatternModel()
    train(model, 300, g)
    with torch.no_grad():
        rows = woven_rows(300, 32, g)
        hit = (model(rows[:, :-1]).argmax(1) == rows[:, 1:])[:, 10:].float().mean()
    print(f"next thread accuracy {hit:.3f}")


if __name__ == "__main__":
    main()
