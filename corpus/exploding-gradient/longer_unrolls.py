"""Continuous control signal predicted by a plain recurrent net; the unroll gets longer once during training.

Source: https://github.com/CUT3R/CUT3R/issues/88 (exponential growth of the gradient norm with sequence length)
Plain PyTorch 2.13: silent, everything stays finite; the gradient norm goes from ~1 to many millions and the loss rises.
"""
import torch
from torch import nn

EXPECT = {
    "class": "e", "kind": "exploding-gradient", "module": "cell", "source_marker": "CULPRIT", "step": 240,
    "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Cell(nn.Module):
    """Random recurrent weights with gain above one, as in reservoir networks, but trained."""

    def __init__(self, inputs, width, gain):
        super().__init__()
        self.read = nn.Linear(inputs, width)
        self.weight = nn.Parameter(torch.randn(width, width) * gain / width**0.5)

    def forward(self, x, h):
        return torch.tanh(self.read(x) + h @ self.weight.t())  # CULPRIT


class Predictor(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.cell = Cell(2, width, gain=2.5)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 1)

    def forward(self, x):
        h = x.new_zeros(len(x), self.cell.weight.shape[0])
        for now in x.unbind(1):
            h = self.cell(now, h)
        return self.out(self.norm(h)).squeeze(1)


class Curriculum:
    def __init__(self, stages):
        self.stages = stages

    def length(self, step):
        return [length for start, length in self.stages if step >= start][-1]


def signals(count, length):
    t = torch.arange(length + 1) * 0.25
    f = 0.5 + torch.rand(count, 1)
    phase = 6.28 * torch.rand(count, 1)
    drive = torch.sin(f * t + phase)
    echo = torch.cos(0.5 * f * t) * drive
    x = torch.stack([drive, echo], -1) * 0.3
    return x[:, :-1] + 0.01 * torch.randn(count, length, 2), drive[:, -1]


def main():
    torch.manual_seed(0)
    model = Predictor()
    curriculum = Curriculum([(0, 4), (80, 6), (160, 8), (240, 80)])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-3, total_steps=420)
    for step in range(420):
        x, wanted = signals(24, curriculum.length(step))
        loss = nn.functional.mse_loss(model(x), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        if step % 30 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
