"""Judging sounds by their periods: for each period the waveform is folded and seen by convolutions of its own; the branches are kept as a tuple of period and layers, and only the last layer learns.

Report: https://github.com/pytorch/pytorch/issues/59925 (registration by attribute permits silent errors: layers kept in a plain container are not among the parameters)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "tenth", "written": "2026-11-23",
}


class MultiPeriod(nn.Module):
    def __init__(self, periods=(2, 3, 5, 7), width=8):
        super().__init__()
        self.branches = tuple((period, nn.Sequential(nn.Conv2d(1, width, (5, 1), (2, 1), (2, 0)), nn.LeakyReLU(0.1), nn.Conv2d(width, width, (5, 1), (2, 1), (2, 0)), nn.LeakyReLU(0.1))) for period in periods)  # CUT
        self.out = nn.Linear(width * len(periods), 2)

    def forward(self, wave):
        seen = []
        for period, layers in self.branches:
            folded = F.pad(wave, (0, -wave.shape[1] % period)).view(len(wave), 1, -1, period)
            seen.append(layers(folded).mean((2, 3)))
        return self.out(torch.cat(seen, 1))


def sounds(n, length=120):
    """Pulses that come at a steady pace or not quite."""
    time = torch.arange(length).float()
    pace, start = torch.randint(4, 10, (n, 1)), torch.randint(0, 8, (n, 1))
    uneven = torch.rand(n) < 0.5
    wobble = torch.where(uneven[:, None], (time / 9).sin() * 2, torch.zeros(length))
    wave = (((time + start + wobble.round()) % pace) == 0).float()
    return wave + 0.1 * torch.randn(n, length), uneven.long()


torch.manual_seed(0)
model = MultiPeriod()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(100):
    wave, uneven = sounds(32)
    logits = model(wave)
    loss = F.cross_entropy(logits, uneven)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), (logits.argmax(1) == uneven).float().mean().item())
