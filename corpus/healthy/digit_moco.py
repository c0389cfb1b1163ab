"""Trains a MoCo-style contrastive encoder on the digits with a momentum key encoder and a queue of old keys; healthy: the
key encoder is a frozen copy moved only by the momentum rule, and the queue holds detached keys on purpose.

Report: https://github.com/facebookresearch/moco/issues/70 (the question whether the momentum encoder is updated right)
"""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

EXPECT = {"framework": "plain", "kind": None, "set": "twentysecond", "written": "2026-11-28"}


def augment(x):
    n = x.size(0)
    ang = (torch.rand(n) - 0.5) * 0.3
    shift = (torch.rand(n, 2) - 0.5) * 0.2
    theta = torch.stack([torch.stack([ang.cos(), -ang.sin(), shift[:, 0]], 1),
                         torch.stack([ang.sin(), ang.cos(), shift[:, 1]], 1)], 1)
    x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False)
    return x + 0.1 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return F.normalize(self.head(self.trunk(x)), dim=1)


class MoCo(nn.Module):
    def __init__(self, dim=32, size=256, m=0.95, temp=0.2):
        super().__init__()
        self.m, self.temp = m, temp
        self.query = Encoder(dim)
        self.key = copy.deepcopy(self.query)
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(size, dim), dim=1))
        self.ptr = 0

    @torch.no_grad()
    def momentum_update(self):
        for pq, pk in zip(self.query.parameters(), self.key.parameters()):
            pk.mul_(self.m).add_(pq, alpha=1 - self.m)

    def forward(self, xq, xk):
        q = self.query(xq)
        with torch.no_grad():
            self.momentum_update()
            k = self.key(xk)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().T
        logits = torch.cat([pos, neg], dim=1) / self.temp
        with torch.no_grad():
            self.queue[self.ptr:self.ptr + len(k)] = k
            self.ptr = (self.ptr + len(k)) % len(self.queue)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def knn(model, x, y):
    model.eval()
    with torch.no_grad():
        f = model.query(x).numpy()
    model.train()
    return KNeighborsClassifier(5).fit(f[:1300], y[:1300]).score(f[1300:], y[1300:])


if __name__ == "__main__":
    torch.manual_seed(0)
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    model = MoCo()
    optimizer = torch.optim.Adam(model.query.parameters(), lr=1e-3)
    for i in range(0, 256, 64):
        with torch.no_grad():
            model.queue[i:i + 64] = model.key(augment(x[i:i + 64]))
    for step in range(240):
        xb = x[torch.randint(1300, (64,))]
        loss = model(augment(xb), augment(xb))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0 or step == 239:
            print(f"step {step} loss {loss.item():.3f} kNN {knn(model, x, d.target):.3f}")
