"""Two-headed convnet (class + ink centroid) with running loss balancing."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CULPRIT", "step": 180,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(8)
d = load_digits()
IMG = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16.0
CLS = torch.tensor(d.target)
grid = torch.linspace(-1, 1, 8)
mass = IMG.sum((1, 2, 3))
CENT = torch.stack([(IMG.sum((1, 2)) * grid).sum(1) / mass, (IMG.sum((1, 3)) * grid).sum(1) / mass], 1)


class TwoHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64 * 16, 256), nn.ReLU())
        self.cls_head = nn.Linear(256, 10)
        self.reg_head = nn.Sequential(nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, x):
        h = self.trunk(x)
        return self.cls_head(h), self.reg_head(h)


class Balancer:
    """Fixed weights first, then each loss is divided by its running average."""

    def __init__(self, start):
        self.start, self.avg = start, [1.0, 1.0]

    def __call__(self, step, losses):
        for i, loss in enumerate(losses):
            self.avg[i] = 0.95 * self.avg[i] + 0.05 * loss.item()
        if step < self.start:
            return losses[0] + 2.0 * losses[1]
        primary, *rest = losses
        total = primary / self.avg[0]
        for loss, a in zip(rest, self.avg[1:]):
            total = total + torch.tensor(loss.item() / a)  # CULPRIT
        return total


model = TwoHead()
balance = Balancer(start=180)
optim = torch.optim.Adam(model.parameters(), lr=5e-4)
tic = time.time()
for step in range(400):
    sel = torch.randint(0, len(IMG), (96,))
    logit, cent = model(IMG[sel])
    losses = [F.cross_entropy(logit, CLS[sel]), F.smooth_l1_loss(cent, CENT[sel])]
    total = balance(step, losses)
    optim.zero_grad()
    total.backward()
    optim.step()
    if step % 50 == 49:
        print(step, [round(one.item(), 5) for one in losses], f"{(time.time() - tic) / (step + 1) * 1e3:.1f} ms/step")
