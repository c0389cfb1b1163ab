"""Segmentation with a reporter that gathers what was observed for the end of the epoch: to be safe from later changes it keeps a clone of each value, graph and all; the loop reports only after the warm-up.

Report: https://github.com/pfnet/pytorch-pfn-extras/pull/49 (the reporter keeps clones, which retain the computational graph; detach instead)
"""
import contextlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 60,
    "set": "eighth", "written": "2026-11-22",
}


class Summary:
    def __init__(self):
        self.values = {}

    def add(self, observation):
        for name, value in observation.items():
            if torch.is_tensor(value):
                value = value.clone()
            self.values.setdefault(name, []).append(value)  # HOLDS

    def means(self):
        return {name: float(sum(values) / len(values)) for name, values in self.values.items()}


class Reporter:
    def __init__(self):
        self.observation = None

    @contextlib.contextmanager
    def scope(self, observation):
        self.observation = observation
        yield
        self.observation = None

    def report(self, values):
        if self.observation is not None:
            self.observation.update(values)


reporter = Reporter()


class UNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.up, self.out = nn.ConvTranspose2d(2 * width, width, 2, stride=2), nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        a = torch.relu(self.down1(x))
        b = torch.relu(self.up(torch.relu(self.down2(a))))
        return self.out(torch.cat([a, b], 1))


class Objective(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, image, mask):
        logits = self.net(image)
        bce = nn.functional.binary_cross_entropy_with_logits(logits, mask)
        p = logits.sigmoid()
        dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
        loss = bce + 0.5 * dice
        reporter.report({"loss": loss, "dice": dice, "positive": (p > 0.5).float().mean()})
        return loss


def blobs(n=480, size=16):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(3, 13, (n, 2, 1, 1))
    mask = ((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2 < 9).float()[:, None]
    return TensorDataset(mask + 0.6 * torch.randn_like(mask), mask)


torch.manual_seed(0)
objective = Objective(UNet())
loader = DataLoader(blobs(), batch_size=16, shuffle=True)
optimizer = torch.optim.Adam(objective.parameters(), lr=3e-3)
summary, step = Summary(), 0
for epoch in range(6):
    for image, mask in loader:
        observation = {}
        with reporter.scope(observation):
            loss = objective(image, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= 60:
            summary.add(observation)
        step += 1
    print(epoch, loss.item())
print(summary.means())
