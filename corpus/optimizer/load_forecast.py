"""GRU forecast of an electricity load with rare meter spikes; clipping comes after optimizer.step(), so the first spike goes unclipped into the weights and the forecaster is wrecked.

Report: https://github.com/VGraphRNN/VGRNN/issues/4 (clip_grad_norm is called after opt.step(), so it has no effect)
"""
import math

import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_

EXPECT = {
    "framework": "plain", "kind": "clipping-without-effect", "line": ("cause", "CAUSE"),
    "what": "clip_grad_norm_ is called after optimizer.step(), when the unclipped gradient has already been applied, so a batch with a meter spike throws the weights far off; clip between backward() and step()",
    "set": "nineteenth", "written": "2026-11-27",
}

torch.manual_seed(2)
WINDOW, BATCH, MAX_NORM = 24, 32, 5.0


def load_series(hours):
    t = torch.arange(hours, dtype=torch.float32)
    series = torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(2 * math.pi * t / 168) + 0.1 * torch.randn(hours)
    spikes = torch.tensor([3100, 4200, 4900])
    series[spikes[spikes < hours]] += 900.0
    return series


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.gru(x.unsqueeze(-1))
        return self.head(out[:, -1]).squeeze(-1)


def batch_at(series, start, n):
    idx = start + torch.arange(n)
    x = series[idx[:, None] + torch.arange(WINDOW)]
    return x, series[idx + WINDOW]


series = load_series(6200)
clean = load_series(1000)
val_x, val_y = batch_at(clean, 0, 900)
model = Forecaster()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
history = []

for step in range(190):
    x, y = batch_at(series, step * BATCH, BATCH)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # OTHER
    norm = clip_grad_norm_(model.parameters(), MAX_NORM)  # CAUSE
    history.append(norm.item())
    if step % 20 == 0 or step == 189:
        with torch.no_grad():
            val = nn.functional.mse_loss(model(val_x), val_y)
        print(f"step {step:3d}  loss {loss.item():10.4f}  val {val.item():8.4f}  largest norm {max(history):.2f}")
        history.clear()
