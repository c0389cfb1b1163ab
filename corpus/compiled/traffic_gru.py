"""Sensor forecasting with a hand written GRU cell and a masked error (sensors drop out)."""

import os

import torch
import torch.nn as nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "HERE"), "set": "compiled", "written": "2026-11-24"}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(17)
N_SENSOR, HID, HIST = 10, 24, 8


class Cell(nn.Module):
    def __init__(self, d_in, d_h):
        super().__init__()
        self.gates = nn.Linear(d_in + d_h, 2 * d_h)
        self.cand = nn.Linear(d_in + d_h, d_h)

    def forward(self, x, h):
        r, u = torch.sigmoid(self.gates(torch.cat([x, h], -1))).chunk(2, -1)
        c = torch.tanh(self.cand(torch.cat([x, r * h], -1)))
        return u * h + (1 - u) * c


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Cell(2 * N_SENSOR, HID)
        self.read = nn.Linear(HID, N_SENSOR)

    def forward(self, x, seen):
        h = x.new_zeros(x.shape[0], HID)
        for t in range(x.shape[1]):
            h = self.cell(torch.cat([x[:, t] * seen[:, t], seen[:, t]], -1), h)
        return self.read(h)


@torch.compile(backend=BACKEND)
def masked_losses(pred, target, mask):
    err = (pred - target).abs()
    per_sensor = (err * mask).sum(0)
    count = mask.sum(0)
    mae = per_sensor / count  # HERE
    smooth = (pred[1:] - pred[:-1]).square().mean()
    return mae.mean() + 1e-3 * smooth


def series(step, bs=16):
    t0 = torch.rand(bs, 1, 1) * 6
    t = t0 + 0.3 * torch.arange(HIST + 1).view(1, -1, 1)
    phase = torch.linspace(0, 3, N_SENSOR)
    x = torch.sin(t + phase) + 0.05 * torch.randn(bs, HIST + 1, N_SENSOR)
    seen = (torch.rand_like(x) > 0.2).float()
    if step >= 17:
        seen[..., 6] = 0.0  # sensor 6 goes offline for good
    return x, seen


net = Forecaster()
cell_params = list(net.cell.parameters())
opt_cell = torch.optim.RMSprop(cell_params, lr=2e-3)
opt_read = torch.optim.Adam(net.read.parameters(), lr=5e-3)
fnet = torch.compile(net, backend=BACKEND)
ACC = 2
for step in range(26):
    for _ in range(ACC):
        x, seen = series(step)
        pred = fnet(x[:, :HIST], seen[:, :HIST])
        loss = masked_losses(pred, x[:, HIST], seen[:, HIST]) / ACC
        loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    for o in (opt_cell, opt_read):
        o.step()
        o.zero_grad(set_to_none=True)
    print("step", step, "mae", ACC * loss.item())
