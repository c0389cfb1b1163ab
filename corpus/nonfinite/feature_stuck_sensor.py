"""Regression on windows of sensors that are standardised one by one: a sensor that stands still in a window makes 0/0 of it, before the model."""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 733,
    "set": "late_again", "written": "2026-11-22",
}


def standardised(window):
    centred = window - window.mean(0)
    return centred / window.std(0)  # CULPRIT


torch.manual_seed(0)
model = nn.LSTM(3, 10)
head = nn.Linear(10, 1)
opt = torch.optim.Adam([*model.parameters(), *head.parameters()], 2e-3)
walk = torch.randn(8000, 3).cumsum(0)
walk[7330:7340, 1] = walk[7330, 1]
for step in range(780):
    window = walk[10 * step : 10 * step + 10]
    features = standardised(window)
    out, _ = model(features[:, None])
    loss = (head(out[-1])[0, 0] - features[-1, 0]).square()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
