"""Forecast of the water level at several tide gauges, one step ahead, with an LSTM that reads long series in pieces.

During the first passes each piece is read from an empty state; later the state is kept from piece to piece.
Report: https://blog.youkuaiyun.com/windhawk_fly/article/details/143405685
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "kind": "inplace",
    "line": ("carried", "HERE"),
    "late": True,
    "plain": "RuntimeError in the first backward pass but one of the stateful phase: a variable needed for gradient computation has been modified by an inplace operation.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

GAUGES = 16
LENGTH = 1201
PIECE = 40
STATELESS_PASSES = 3
PASSES = 6


def make_series(seed=3):
    rng = np.random.default_rng(seed)
    hours = np.arange(LENGTH)
    levels = []
    for _ in range(GAUGES):
        moon = rng.uniform(0.8, 1.6) * np.sin(2 * np.pi * hours / 12.42 + rng.uniform(0, 6))
        sun = rng.uniform(0.2, 0.5) * np.sin(2 * np.pi * hours / 12.0 + rng.uniform(0, 6))
        surge = np.convolve(rng.normal(0, 0.3, LENGTH), np.ones(24) / 24, mode="same")
        levels.append(moon + sun + surge + rng.normal(0, 0.03, LENGTH))
    return torch.tensor(np.stack(levels), dtype=torch.float32).unsqueeze(-1)


class TideModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.lstm = nn.LSTM(1, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, levels, state=None):
        hidden, state = self.lstm(levels, state)
        return self.out(hidden), state


def pieces(series):
    for start in range(0, LENGTH - 1, PIECE):
        stop = min(start + PIECE, LENGTH - 1)
        yield series[:, start:stop], series[:, start + 1:stop + 1]


def run_pass(model, optimizer, series, stateful):
    state, total, count = None, 0.0, 0
    for inputs, targets in pieces(series):
        forecast, new_state = model(inputs, state)
        loss = nn.functional.mse_loss(forecast, targets)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if stateful:
            state = new_state  # HERE
        total += loss.item()
        count += 1
    return total / count


def main():
    torch.manual_seed(0)
    series = make_series()
    model = TideModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for number in range(PASSES):
        stateful = number >= STATELESS_PASSES
        loss = run_pass(model, optimizer, series, stateful)
        print(f"pass {number}  stateful {stateful}  mse {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
