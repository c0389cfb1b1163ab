"""Speech commands in float16 with a gradient scaler: the first steps overflow on purpose, the scaler leaves them out, halves the scale and finds its range. Healthy.

Report: https://github.com/huggingface/transformers/pull/11144 ("the optimizer may get skipped until the right scale is found"); https://github.com/pytorch/pytorch/issues/44511
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "eleventh", "written": "2026-11-23"}


class CommandNet(nn.Module):
    def __init__(self, bands=20, width=32, words=6):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(bands, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, width, 5, padding=2), nn.ReLU())
        self.out = nn.Linear(width, words)

    def forward(self, x):
        return self.out(self.conv(x).mean(-1))


def commands(patterns, count=32, frames=24):
    word = torch.randint(0, len(patterns), (count,))
    return patterns[word] + 0.7 * torch.randn(count, 20, frames), word


torch.manual_seed(0)
model, patterns = CommandNet(), torch.randn(6, 20, 24)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=200)
for step in range(90):
    x, word = commands(patterns)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x).float(), word)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step < 10 or step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f} scale {scaler.get_scale():.0f}")
