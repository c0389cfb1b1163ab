"""Heartbeat shapes without labels: momentum contrast with a queue of keys, checked by a nearest-neighbour rule.

Looks suspicious: every target of the cross entropy is 0, and the second encoder gets no gradient, is in no optimizer and
its weights are written under no_grad, just as the queue is written in place. All of it is right: the positive logit is put
in column 0, the key encoder is meant to be a slow average of the query encoder, and keys are constants for the loss. The
nearest-neighbour accuracy grows well above that of the raw signal.
Follows https://github.com/facebookresearch/moco/issues/24
"""
import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": None,
    "plain": "nothing is wrong",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

KINDS = 8
LENGTH = 64
QUEUE = 512


def beats(n, seed):
    rng = np.random.default_rng(seed)
    shapes = np.random.default_rng(33)
    t = np.linspace(0, 1, LENGTH)
    centre, width, height = (shapes.uniform(a, b, (KINDS, 3)) for a, b in ((0.3, 0.7), (0.02, 0.08), (-1, 1.5)))
    y = rng.integers(0, KINDS, size=n)
    bump = np.exp(-((t - centre[y][..., None]) / width[y][..., None]) ** 2)
    x = (height[y][..., None] * bump).sum(1)
    return torch.tensor(wander(x, rng, 0.25), dtype=torch.float32), torch.tensor(y)


def wander(x, rng, noise):
    moved = np.stack([np.roll(row, rng.integers(-10, 11)) for row in x])
    gain = rng.uniform(0.6, 1.5, size=(len(x), 1))
    slope = rng.normal(size=(len(x), 1)) * np.linspace(-1, 1, LENGTH)
    return gain * moved + 0.6 * slope + noise * rng.normal(size=moved.shape)


class Encoder(nn.Module):
    def __init__(self, out=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 24, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(24, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(64, 64),
        )
        self.project = nn.Sequential(nn.ReLU(), nn.Linear(64, out))

    def forward(self, x):
        return F.normalize(self.project(self.body(x.unsqueeze(1))), dim=1)


class Contrast(nn.Module):
    def __init__(self, momentum=0.98, temperature=0.15):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.momentum, self.temperature = momentum, temperature
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, 32), dim=1))
        self.pointer = 0

    @torch.no_grad()
    def keys(self, view):
        for k, q in zip(self.key.parameters(), self.query.parameters()):
            k.mul_(self.momentum).add_(q, alpha=1 - self.momentum)
        return self.key(view)

    def forward(self, one, two):
        q, k = self.query(one), self.keys(two)
        same = (q * k).sum(1, keepdim=True)
        other = q @ self.queue.clone().T
        logits = torch.cat([same, other], dim=1) / self.temperature
        self.queue[self.pointer:self.pointer + len(k)] = k
        self.pointer = (self.pointer + len(k)) % QUEUE
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


@torch.no_grad()
def neighbour_accuracy(feature, bank, check):
    a, b = F.normalize(feature(bank[0]), dim=1), F.normalize(feature(check[0]), dim=1)
    return (bank[1][(b @ a.T).argmax(1)] == check[1]).float().mean().item()


def main():
    torch.manual_seed(2)
    rng = np.random.default_rng(9)
    data, bank, check = beats(2048, 0), beats(600, 1), beats(600, 2)
    model = Contrast()
    opt = torch.optim.Adam(model.query.parameters(), lr=2e-3)
    body = lambda x: model.query.body(x.unsqueeze(1))
    print(f"raw signal: {neighbour_accuracy(lambda x: x, bank, check):.3f}")
    for epoch in range(18):
        total = 0.0
        order = rng.permutation(len(data[0]))
        for part in order.reshape(-1, 64):
            x = data[0][part].numpy()
            one, two = (torch.tensor(wander(x, rng, 0.1), dtype=torch.float32) for _ in range(2))
            loss = model(one, two)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / 32:.4f} neighbour accuracy {neighbour_accuracy(body, bank, check):.3f}")


if __name__ == "__main__":
    main()
