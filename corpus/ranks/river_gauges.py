"""Water level six hours ahead at river gauges; tidal gauges have an own correction head. Trained with
DistributedDataParallel (here one gloo process) in the order of time.

Report: https://github.com/pytorch/pytorch/issues/43259
(also https://github.com/open-mmlab/mmdetection/pull/4742)
"""
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none-grad",
    "line": ("cut", "cause"),
    "plain": "After about 70 good steps the next forward raises 'Expected to have finished reduction in the prior iteration before starting a new one'.",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

HISTORY = 16
BATCH = 32


def make_gauges(n, rng):
    t = np.arange(n)
    tidal = rng.random(n) < 0.25
    tidal[70 * BATCH:72 * BATCH] = False
    phase = rng.uniform(0, 2 * np.pi, n)
    steps = np.arange(HISTORY + 6)
    season = 0.5 * np.sin(2 * np.pi * t / n)[:, None]
    river = season + 0.6 * np.sin(0.15 * steps[None] + phase[:, None])
    tide = np.sin(2 * np.pi * steps[None] / 12.4 + 2 * phase[:, None])
    level = river + tidal[:, None] * tide + rng.normal(0, 0.05, (n, HISTORY + 6))
    x = torch.tensor(level[:, :HISTORY], dtype=torch.float32)
    return x, torch.tensor(tidal), torch.tensor(level[:, -1], dtype=torch.float32)


class GaugeNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(HISTORY, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.level = nn.Linear(width, 1)
        self.tide = nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, x, tidal):
        h = self.body(x)
        out = self.level(h).squeeze(-1)
        if tidal.any():  # <-- cause
            extra = torch.zeros_like(out)
            extra[tidal] = self.tide(h[tidal]).squeeze(-1)
            out = out + extra
        return out


def start_process_group():
    path = os.path.join(tempfile.mkdtemp(), "rendezvous")
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=1)


def main():
    torch.manual_seed(1)
    start_process_group()
    data = TensorDataset(*make_gauges(4800, np.random.default_rng(1)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=False)
    net = DistributedDataParallel(GaugeNet())  # <-- cause
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    step = 0
    try:
        for epoch in range(5):
            errors = []
            for x, tidal, y in loader:
                loss = nn.functional.mse_loss(net(x, tidal), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                errors.append(loss.item())
                step += 1
                if step % 25 == 0:
                    print(f"step {step}  loss {np.mean(errors[-25:]):.4f}")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
