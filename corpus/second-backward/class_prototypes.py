"""Prototype classifier: running class centres, plain at first, differentiable after a warm-up.

Source: https://github.com/imatif17/Prototype-Mean-Teacher/issues/14 (why the prototypes are detached every iteration)
Plain PyTorch 2.13: RuntimeError "backward through the graph a second time", one step after the warm-up ended.
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "c", "kind": "second-backward", "bridge_marker": "REUSED", "freed_marker": "FREED", "step": 261,
    "plain": {"outcome": "raises", "match": "backward through the graph a second time"},
    "set": "thirteenth", "written": "2026-11-25",
}

CLASSES, WIDTH, WARM = 5, 24, 260


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, 16, 5, stride=2), nn.GELU(), nn.Conv1d(16, WIDTH, 5, stride=2), nn.GELU())

    def forward(self, x):
        return F.normalize(self.conv(x).mean(-1), dim=1)


class Prototypes(nn.Module):
    def __init__(self, momentum=0.9):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("centres", F.normalize(torch.randn(CLASSES, WIDTH), dim=1))
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def batch_centres(self, z, y):
        count = torch.zeros(CLASSES).index_add(0, y, torch.ones(len(y))).clamp(min=1)
        total = torch.zeros(CLASSES, WIDTH).index_add(0, y, z)
        return total / count[:, None]

    def follow(self, z, y, differentiable):
        new = self.batch_centres(z, y)
        if not differentiable:
            new = new.detach()
        self.centres = self.momentum * self.centres + (1 - self.momentum) * new  # REUSED

    def forward(self, z):
        return z @ F.normalize(self.centres, dim=1).t() * self.temperature.exp()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.prototypes = Encoder(), Prototypes()

    def forward(self, x, y, step):
        z = self.encoder(x)
        self.prototypes.follow(z, y, step >= WARM)
        return self.prototypes(z)


def batch(generator):
    y = torch.randint(0, CLASSES, (32,), generator=generator)
    t = torch.linspace(0, 6, 64)
    phase = torch.rand(32, 1, generator=generator) * 6
    x = torch.stack([torch.sin((y[:, None] + 1) * t + phase), torch.cos((y[:, None] * 0.5 + 1) * t)], 1)
    return x + 0.3 * torch.randn(x.shape, generator=generator), y


def main():
    torch.manual_seed(0)
    model, generator = Model(), torch.Generator().manual_seed(1)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(500):
        x, y = batch(generator)
        loss = F.cross_entropy(model(x, y, step), y)
        opt.zero_grad()
        loss.backward()  # FREED
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
