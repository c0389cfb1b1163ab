"""Features for the rehearsal store are computed under inference_mode; from step 120 on they are replayed through the
head, whose linear layer must save them for backward, and autograd refuses inference tensors.

Report: a kind of mistake, no single report: the RuntimeError 'Inference tensors cannot be saved for backward' after
features were cached under inference_mode
"""
import random

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": "grad-mode-disabled",
    "line": ("cut", "HERE"),
    "plain": "RuntimeError at step 120 as it is; with no_grad 0.788 on early and 1.000 on late vessels",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(23)
random.seed(23)
BANDS = 20
REPLAY_FROM = 120


class Receiver(nn.Module):
    def __init__(self, vessels=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(BANDS, 64),
            nn.ReLU(),
            nn.Linear(64, 32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32, vessels)

    def forward(self, x):
        return self.head(self.body(x))


class Rehearsal:
    """Keeps features of earlier calls with their vessel."""

    def __init__(self, capacity=12):
        self.capacity = capacity
        self.items = []

    @torch.inference_mode()  # HERE
    def store(self, model, x, y):
        item = (model.body(x), y)
        if len(self.items) < self.capacity:
            self.items.append(item)
        else:
            self.items[random.randrange(self.capacity)] = item

    def draw(self):
        return random.choice(self.items)


def calls(signatures, vessels, n, generator):
    y = vessels[torch.randint(0, len(vessels), (n,), generator=generator)]
    x = signatures[y] + 0.8 * torch.randn(n, BANDS, generator=generator)
    return x, y


def main():
    g = torch.Generator().manual_seed(1)
    signatures = torch.randn(8, BANDS, generator=g)
    early, late = torch.arange(0, 4), torch.arange(4, 8)
    model, memory = Receiver(), Rehearsal()
    groups = [
        {"params": model.body.parameters(), "lr": 0.001},
        {"params": model.head.parameters(), "lr": 0.05},
    ]
    opt = torch.optim.SGD(groups, momentum=0.9)
    for step in range(300):
        season = early if step < REPLAY_FROM else late
        x, y = calls(signatures, season, 32, g)
        loss = F.cross_entropy(model(x), y)
        if step >= REPLAY_FROM:
            feats, labels = memory.draw()
            loss = loss + F.cross_entropy(model.head(feats), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step < REPLAY_FROM and step % 5 == 0:
            memory.store(model, x, y)
        if step % 30 == 0:
            print(f"step {step:3d}  loss {loss.item():.3f}")
    with torch.no_grad():
        for name, season in (("early", early), ("late", late)):
            x, y = calls(signatures, season, 500, g)
            print(f"{name} vessels: {(model(x).argmax(1) == y).float().mean():.3f}")


if __name__ == "__main__":
    main()
