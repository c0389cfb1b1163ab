"""Trains a momentum-contrast encoder on digits; healthy: the key encoder has no gradients on purpose and follows by averaging.
Report: none (what looks odd and is right: a network outside the optimizer, a queue of cached tensors from earlier steps, a detached branch)
"""
import copy

import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"framework": "plain", "kind": None, "set": "twentieth", "written": "2026-11-27"}


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.proj = nn.Linear(64, dim)

    def forward(self, x):
        return F.normalize(self.proj(self.trunk(x)), dim=1)


class MoCo(nn.Module):
    def __init__(self, size=512, momentum=0.98, temperature=0.2):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.momentum, self.temperature = momentum, temperature
        self.register_buffer("queue", F.normalize(torch.randn(size, 32), dim=1))
        self.cursor = 0

    @torch.no_grad()
    def follow(self):
        for k, q in zip(self.key.parameters(), self.query.parameters()):
            k.mul_(self.momentum).add_(q, alpha=1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        idx = (self.cursor + torch.arange(len(keys))) % len(self.queue)
        self.queue[idx] = keys
        self.cursor = (self.cursor + len(keys)) % len(self.queue)

    def forward(self, a, b):
        q = self.query(a)
        with torch.no_grad():
            k = self.key(b)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().T], dim=1) / self.temperature
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long)), k


def augment(images):
    out = torch.roll(images.view(-1, 8, 8), shifts=int(torch.randint(-1, 2, (1,))), dims=2).flatten(1)
    return out * (0.8 + 0.4 * torch.rand(len(out), 1)) + 0.1 * torch.randn_like(out)


@torch.no_grad()
def neighbour_score(encoder, x, y, split=1200):
    h = F.normalize(encoder.trunk(x), dim=1)
    nearest = (h[split:] @ h[:split].T).argmax(1)
    return (y[:split][nearest] == y[split:]).float().mean().item()


def main():
    torch.manual_seed(12)
    digits = load_digits()
    x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    y = torch.tensor(digits.target)
    model = MoCo()
    optimizer = torch.optim.AdamW(model.query.parameters(), lr=2e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=240)
    for step in range(240):
        images = x[torch.randint(0, len(x), (64,))]
        loss, keys = model(augment(images), augment(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        model.follow()
        model.enqueue(keys)
        if (step + 1) % 40 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}  nearest neighbour {neighbour_score(model.query, x, y):.3f}")


if __name__ == "__main__":
    main()
