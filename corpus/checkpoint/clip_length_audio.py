"""Audio tagging on short and then long clips; long clips go through activation checkpointing.

Story: for the first 150 steps clips are short, afterwards four times as long, and to have the
memory for it the convolution stages are checkpointed.  The training loss is the same as
without checkpointing but the scores in eval mode are not: the running statistics of the batch
norms are other ones.
Based on public reports: pytorch/pytorch#96136 ("checkpoint should avoid updating BatchNorm
statistics twice"), gpleiss/efficient_densenet_pytorch#73 and deepinsight/insightface#2053.
"""
import logging
import math
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "x", "kind": "checkpoint-side-effect", "region_marker": "REGION", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

log = logging.getLogger("tagger")
CLASSES = 4


@dataclass
class Config:
    steps: int = 300
    short: int = 512
    long: int = 2048
    long_from: int = 150
    batch: int = 16
    lr: float = 2e-3


def make_clips(n, length, generator):
    """Chirps that go up, down, stay or wobble, in noise."""
    t = torch.linspace(0, 1, length)
    label = torch.randint(CLASSES, (n,), generator=generator)
    base = 0.05 + 0.1 * torch.rand(n, 1, generator=generator)
    slope = torch.tensor([0.08, -0.04, 0.0, 0.0])[label].unsqueeze(1)
    wobble = (label == 3).float().unsqueeze(1) * 0.05 * torch.sin(2 * math.pi * 8 * t)
    phase = torch.cumsum(2 * math.pi * (base + slope * t + wobble), dim=1)
    return torch.sin(phase) + 0.3 * torch.randn(n, length, generator=generator), label


class Stage(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, 9, stride=stride, padding=4, bias=False)
        self.norm = nn.BatchNorm1d(cout, momentum=0.05)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, 12, 16, stride=4)
        self.stages = nn.ModuleList([Stage(12, 24, 2), Stage(24, 24, 2), Stage(24, 32, 2)])
        self.head = nn.Linear(32, CLASSES)
        self.save_memory = False

    def forward(self, wave):
        h = self.stem(wave.unsqueeze(1))
        for stage in self.stages:
            if self.save_memory and self.training:
                h = checkpoint(stage, h, use_reentrant=False)  # REGION
            else:
                h = stage(h)
        return self.head(h.mean(-1))


@torch.no_grad()
def evaluate(model, length):
    model.eval()
    wave, label = make_clips(128, length, torch.Generator().manual_seed(99))
    accuracy = (model(wave).argmax(1) == label).float().mean().item()
    model.train()
    return accuracy


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    cfg = Config()
    g = torch.Generator().manual_seed(1)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for step in range(cfg.steps):
        is_long = step >= cfg.long_from
        model.save_memory = is_long
        length = cfg.long if is_long else cfg.short
        wave, label = make_clips(cfg.batch, length, g)
        loss = F.cross_entropy(model(wave), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            log.info("step %d loss %.3f eval acc %.2f", step, loss.item(), evaluate(model, length))


if __name__ == "__main__":
    main()
