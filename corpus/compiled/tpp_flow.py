"""Conditional affine flow for inter-arrival times (marked events). Some marks come with a zero delay."""

import math
import os

import torch
import torch.nn as nn

EXPECT = {
    "kind": "nonfinite-backward",
    "line": ("cause", "HERE"),
    "module": "warp",
    "set": "compiled",
    "written": "2026-11-24",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch.manual_seed(21)


class TimeWarp(nn.Module):
    """dt -> log-time, after a learned gain per mark; simultaneous events map to 0."""

    def __init__(self, n_mark):
        super().__init__()
        self.gain = nn.Embedding(n_mark, 1)
        nn.init.zeros_(self.gain.weight)

    def forward(self, dt, mark):
        g = self.gain(mark).squeeze(-1).exp()
        t = dt * g
        lt = torch.where(t > 0, torch.log(t), torch.zeros_like(t))  # HERE
        return lt


class AffineStep(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 32), nn.ELU(), nn.Linear(32, 2))

    def forward(self, x, ctx):
        s, b = self.net(ctx).unbind(-1)
        s = torch.tanh(s)
        return (x - b) * torch.exp(-s), -s


class EventFlow(nn.Module):
    def __init__(self, n_mark=6, d=24, n_flow=2):
        super().__init__()
        self.emb = nn.Embedding(n_mark, d)
        self.rnn = nn.ModuleList([nn.Linear(2 * d + 1, d)])
        self.warp = TimeWarp(n_mark)
        self.flows = nn.ModuleList(AffineStep(d) for _ in range(n_flow))
        self.d = d

    def forward(self, dt, mark):
        lt = self.warp(dt, mark)
        e = self.emb(mark)
        h = e.new_zeros(dt.shape[0], self.d)
        logp = 0.0
        for t in range(dt.shape[1]):
            z, ld = lt[:, t], 0.0
            for f in self.flows:
                z, d = f(z, h)
                ld = ld + d
            logp = logp - 0.5 * z * z - 0.5 * math.log(2 * math.pi) + ld
            h = torch.tanh(self.rnn[0](torch.cat([h, e[:, t], lt[:, t, None]], -1)))
        return -logp.mean() / dt.shape[1]


def sample(step, bs=32, T=4):
    mark = torch.randint(0, 6, (bs, T))
    dt = torch.distributions.LogNormal(0.3 * mark.float() - 1, 0.5).sample()
    if step >= 7:  # the second shard of the log has ties
        dt = dt * (torch.rand_like(dt) > 0.05)
    return dt, mark


flow = EventFlow()
cflow = torch.compile(flow, backend=BACKEND)
opt = torch.optim.Adam(flow.parameters(), lr=4e-3)
for step in range(18):
    nll = cflow(*sample(step))
    opt.zero_grad()
    nll.backward()
    opt.step()
    print(f"[{step}] nll {nll.item():.4f}")
