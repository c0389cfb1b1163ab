"""Trains one rainfall network over four stations with gradient accumulation; only the last station is learnt.

Report: https://github.com/gaozhihan/PreDiff/issues/32 (.zero_grad() is called outside the IF condition of the accumulation, so the accumulated gradient is erased)

Effect: the error of stations 0 to 2 stays high, only station 3 (the last micro-batch before each step) improves.
"""
import torch
from torch import nn

EXPECT = {
    "framework": "plain", "kind": "gradient-not-used", "line": ("cleared", "CAUSE"),
    "what": "zero_grad is called for every micro-batch, so the accumulated gradients are wiped and only the last micro-batch counts; move it into the if, after optimizer.step().",
    "set": "eighteenth", "written": "2026-11-27",
}

STATIONS = 4
ACCUM = 4


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.place = nn.Embedding(STATIONS, 8)
        self.rnn = nn.GRU(1 + 8, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, series, station):
        e = self.place(station)[:, None, :].expand(-1, series.shape[1], -1)
        h, _ = self.rnn(torch.cat([series, e], -1))
        return self.out(h[:, -1])


def station_batch(station, n, gen):
    phase = torch.rand(n, 1, generator=gen) * 6.28
    t = torch.arange(13).float()[None]
    wave = torch.sin(phase + t * (0.4 + 0.3 * station))
    target = wave[:, 12:] * (1.0 if station % 2 else -1.0) + 0.5 * station
    return wave[:, :12, None], torch.full((n,), station), target


def run(steps=100):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)
    model = Forecaster()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    loss_fn = nn.MSELoss()
    running = [0.0] * STATIONS
    for it in range(steps * ACCUM):
        x, where, y = station_batch(it % STATIONS, 24, gen)
        opt.zero_grad()  # CAUSE
        loss = loss_fn(model(x, where), y) / ACCUM
        loss.backward()
        running[it % STATIONS] = loss.item() * ACCUM
        if (it + 1) % ACCUM == 0:
            opt.step()
        if (it + 1) % (25 * ACCUM) == 0:
            print(f"update {(it + 1) // ACCUM}: mse by station " + " ".join(f"{v:.3f}" for v in running))


if __name__ == "__main__":
    run()
