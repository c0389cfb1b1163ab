"""Wave height from reports of buoys; coastal and offshore buoys have readers of their own, trained with DistributedDataParallel.

Report: https://github.com/Yuanhy1997/SeqDiffuSeq/issues/25
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
    "line": ("wrapped", "HERE"),
    "framework": "torch.distributed",
    "late": True,
    "plain": "In the second epoch, between steps 180 and 200: RuntimeError 'Expected to have finished reduction in the prior iteration before starting a new one'.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

FEATURES = 10


class BuoyModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.coastal = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU())
        self.offshore = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU())
        self.body = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, reports, is_offshore):
        hidden = reports.new_zeros(len(reports), self.body[0].in_features)
        if (~is_offshore).any():
            hidden[~is_offshore] = self.coastal(reports[~is_offshore])
        if is_offshore.any():
            hidden[is_offshore] = self.offshore(reports[is_offshore])
        return self.body(hidden).squeeze(-1)


def make_reports(count=4000, seed=11):
    rng = np.random.default_rng(seed)
    reports = rng.normal(size=(count, FEATURES)).astype(np.float32)
    offshore = rng.random(count) < 0.14
    near = np.tanh(reports[:, 0]) + 0.5 * reports[:, 1] * reports[:, 2]
    far = 2.0 + 1.5 * np.abs(reports[:, 3]) - reports[:, 4]
    height = np.where(offshore, far, near) + rng.normal(0, 0.1, count)
    return torch.from_numpy(reports), torch.from_numpy(offshore), torch.tensor(height, dtype=torch.float32)


def start_group(folder):
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)


def train(model, loader, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0
    for epoch in range(epochs):
        total = 0.0
        for reports, offshore, height in loader:
            loss = nn.functional.mse_loss(model(reports, offshore), height)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if step % 20 == 0:
                print(f"step {step}  mse {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}  mean mse {total / len(loader):.4f}", flush=True)


def main():
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        start_group(folder)
        try:
            loader = DataLoader(TensorDataset(*make_reports()), batch_size=32, shuffle=True)
            model = DistributedDataParallel(BuoyModel())  # HERE
            train(model, loader, epochs=6)
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
