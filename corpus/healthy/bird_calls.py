"""Calls of birds without labels: an online and a target network learn to agree on two noisy copies of a call.

Looks suspicious: half of the weights never get a gradient and are in no optimizer, yet they change at every step (in place, outside
of autograd), and the target's output is cut off from the graph. It is right: the
target is a moving average of the online network (BYOL), its batch-norm statistics come from its own passes in training mode, the
predictor is only on the online side, and a linear probe on the frozen features, measured before and after, improves clearly.
A public report that doubts it: no report
"""
import copy

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": None,
    "plain": "a loss that does not collapse and a probe that gets better",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

KINDS = 6


class Calls:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.random = torch.Generator().manual_seed(seed)

    def draw(self, n):
        kind = self.rng.integers(0, KINDS, n)
        t = np.arange(64) / 64.0
        rows = np.zeros((n, 64), dtype=np.float32)
        for i, k in enumerate(kind):
            start, bend = 4 + 1.6 * k, (-3 if k % 2 else 3) + self.rng.normal(0, 0.2)
            rows[i] = np.sin(2 * np.pi * (start * t + bend * t ** 2) + self.rng.uniform(0, 2 * np.pi))
        spectrum = np.abs(np.fft.rfft(rows, axis=1)).astype(np.float32)
        return torch.from_numpy(spectrum / 8), torch.from_numpy(kind)

    def disturb(self, x):
        gain = 1 + 0.3 * torch.randn(len(x), 1, generator=self.random)
        keep = (torch.rand(x.shape, generator=self.random) > 0.2).float()
        return x * gain * keep + 0.25 * torch.randn(x.shape, generator=self.random)


def tower():
    return nn.Sequential(nn.Linear(33, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))


class Agreement(nn.Module):
    def __init__(self, decay):
        super().__init__()
        self.decay = decay
        self.online = tower()
        self.project = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32))
        self.predict = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.target = copy.deepcopy(nn.Sequential(self.online, self.project)).requires_grad_(False)

    def forward(self, one, two):
        def side(a, b):
            guess = self.predict(self.project(self.online(a)))
            with torch.no_grad():
                goal = self.target(b)
            return 2 - 2 * F.cosine_similarity(guess, goal, dim=1).mean()
        return 0.5 * (side(one, two) + side(two, one))

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), nn.Sequential(self.online, self.project).parameters()):
            slow.lerp_(fast, 1 - self.decay)


@torch.no_grad()
def probe(model, few, many):
    model.eval()
    features = [model.online(model_x).numpy() for model_x in (few[0], many[0])]
    model.train()
    return LogisticRegression(max_iter=500).fit(features[0], few[1].numpy()).score(features[1], many[1].numpy())


def main():
    torch.manual_seed(24)
    torch.set_num_threads(1)
    calls = Calls(24)
    few, many = calls.draw(60), calls.draw(600)
    few, many = (calls.disturb(few[0]), few[1]), (calls.disturb(many[0]), many[1])
    model = Agreement(decay=0.98)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=2e-3, weight_decay=1e-4)
    print(f"before: probe {probe(model, few, many):.3f}")
    recent = []
    for step in range(600):
        x, _ = calls.draw(96)
        loss = model(calls.disturb(x), calls.disturb(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.follow()
        recent.append(loss.item())
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {sum(recent) / len(recent):.4f}  probe {probe(model, few, many):.3f}")
            recent = []


if __name__ == "__main__":
    main()
