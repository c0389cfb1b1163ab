"""Digits with a layer that looks up where it wants to, from some step on: the grid of places is the same for all features of a size and is cached, by the features themselves, which are tensors with a graph.

Report: https://github.com/facebookresearch/ParlAI/pull/2487 (a leak due to lru_cache, which keeps what it was called with in memory)
"""
from functools import lru_cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 50,
    "set": "tenth", "written": "2026-11-23",
}


@lru_cache(maxsize=128)  # HOLDS
def places_like(features):
    """Places of a map's pixels between -1 and 1, (1, h, w, 2)."""
    h, w = features.shape[-2:]
    y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    return torch.stack([x, y], 2)[None].to(features.dtype)


class LookElsewhere(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.offset = nn.Conv2d(width, 2, 3, padding=1)
        nn.init.zeros_(self.offset.weight)

    def forward(self, features):
        offset = 0.5 * torch.tanh(self.offset(features)).permute(0, 2, 3, 1)
        return F.grid_sample(features, places_like(features) + offset, align_corners=True)  # HOLDS


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.look, self.out = LookElsewhere(width), nn.Linear(width * 16, 10)
        self.looking = False

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        if self.looking:
            x = self.look(x)
        return self.out(F.relu(self.conv2(x)).flatten(1))


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(110):
    net.looking = step >= 50
    pick = torch.randint(0, len(labels), (48,))
    loss = F.cross_entropy(net(images[pick]), labels[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), "cached", places_like.cache_info().currsize)
