"""GRU load forecast, trained on one year, then continued from the checkpoint on a new region; the second stage hardly learns.
Report: https://github.com/mapbox/robosat/issues/169 (resume loads the optimizer state including the learning rate and ignores the one the user asked for)

optimizer.load_state_dict also restores lr, which the cosine schedule of stage one had brought to about 1e-6. The requested 3e-3 is gone:
the loss of stage two stays flat near its start, in a mended copy it falls several times lower.
"""
import math
import os
import tempfile

import torch
from torch import nn

EXPECT = {
    "framework": "plain", "kind": "schedule-not-resumed", "line": ("cause", "CAUSE"),
    "what": "loading the optimizer state also restores the decayed learning rate (about 0) of the end of stage one and discards the new lr; set the lr in the param groups after loading, or do not load the optimizer state",
    "set": "twentysecond", "written": "2026-11-28",
}


def load_curve(n, daily, weekly, trend, noise, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n, dtype=torch.float32)
    return (daily * torch.sin(2 * math.pi * t / 24) + weekly * torch.cos(2 * math.pi * t / 168)
            + trend * torch.sin(2 * math.pi * t / 12) + noise * torch.randn(n, generator=g))


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 6)

    def forward(self, x):
        return self.out(self.rnn(x.unsqueeze(-1))[0][:, -1])


def batches(series, steps, gen, window=36, size=32):
    for _ in range(steps):
        start = torch.randint(0, len(series) - window - 6, (size,), generator=gen)
        cut = torch.stack([series[s:s + window + 6] for s in start.tolist()])
        yield cut[:, :window], cut[:, window:]


def run_stage(model, optimizer, series, steps, gen, scheduler=None, name=""):
    for i, (x, y) in enumerate(batches(series, steps, gen)):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        if i % 50 == 49:
            print(f"{name} step {i + 1}: loss {loss.item():.4f}")


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    path = os.path.join(tempfile.mkdtemp(), "stage1.pt")

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=150, eta_min=1e-6)
    run_stage(model, optimizer, load_curve(3000, 1.0, 0.4, 0.0, 0.05, 0), 150, gen, scheduler, "north")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

    checkpoint = torch.load(path)
    model = Forecaster()
    model.load_state_dict(checkpoint["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    optimizer.load_state_dict(checkpoint["optimizer"])  # CAUSE
    run_stage(model, optimizer, load_curve(3000, 0.6, 0.2, 0.9, 0.05, 5), 200, gen, None, "south")


if __name__ == "__main__":
    main()
