"""Gradients are clipped to norm 1 while they still carry the loss scale of 65536; after unscaling next to nothing is
left, and SGD barely moves.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/9599,
https://github.com/milesial/Pytorch-UNet/issues/468 (clipping before unscaling)
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "HERE"),
    "plain": "with: loss stays at 2.0, held-out accuracy 0.211 at every check; with scaler.unscale_(optimizer) before the clipping: 0.995 after 30 steps, 1.000 at the end",
    "set": "twentyeighth",
    "written": "2026-11-29",
}



@dataclass
class Config:
    steps: int = 300
    batch: int = 48
    lr: float = 0.05
    clip: float = 1.0
    seed: int = 6


def drill(n, gen, depth=64):
    z = torch.linspace(0, 1, depth)
    layers = torch.randint(3, 9, (n, 1), generator=gen).float()
    phase = torch.rand(n, 1, generator=gen) * 6.28
    squeeze = 1.0 + 0.6 * torch.rand(n, 1, generator=gen)
    dust = torch.sin(6.28 * layers * z**squeeze + phase)
    dust = dust + 0.35 * torch.randn(n, depth, generator=gen)
    return dust.unsqueeze(1), (layers.squeeze(1) - 3).long()


class Residual(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.a = nn.Conv1d(ch, ch, 5, padding=2, bias=False)
        self.na = nn.GroupNorm(4, ch)
        self.b = nn.Conv1d(ch, ch, 5, padding=2, bias=False)
        self.nb = nn.GroupNorm(4, ch)

    def forward(self, x):
        h = F.relu(self.na(self.a(x)))
        return F.relu(x + self.nb(self.b(h)))


class CoreNet(nn.Module):
    def __init__(self, ch=24, classes=6):
        super().__init__()
        self.stem = nn.Conv1d(1, ch, 9, stride=2, padding=4)
        self.blocks = nn.Sequential(Residual(ch), nn.MaxPool1d(2), Residual(ch), nn.MaxPool1d(2))
        self.head = nn.Linear(ch * 8, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).flatten(1))


class CoreTrainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(cfg.seed + 1)
        self.model = CoreNet()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=cfg.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
        )
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, cfg.steps)
        self.scaler = torch.amp.GradScaler("cpu")
        self.held = drill(800, torch.Generator().manual_seed(100))

    def step(self):
        x, y = drill(self.cfg.batch, self.gen)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)  # HERE
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        acc = (self.model(self.held[0]).argmax(-1) == self.held[1]).float().mean().item()
        self.model.train()
        return acc

    def fit(self):
        window = []
        for i in range(self.cfg.steps):
            window.append(self.step())
            if (i + 1) % 30 == 0:
                print(f"step {i + 1:3d} loss {sum(window) / len(window):.4f} held-out acc {self.accuracy():.3f}")
                window.clear()


if __name__ == "__main__":
    CoreTrainer(Config()).fit()
