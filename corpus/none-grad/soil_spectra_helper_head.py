"""Estimate carbon and clay in soil from spectra; distributed data parallel (one gloo process), a helper task at first.

Report: https://github.com/pytorch/pytorch/issues/43259
"""
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EXPECT = {
    "kind": "none-grad",
    "line": ("wrapped", "HERE"),
    "plain": "training runs well for three epochs, then RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

BANDS = 80
HELPER_EPOCHS = 3


def make_soil(n, seed):
    rng = np.random.default_rng(seed)
    carbon, clay, water = rng.uniform(0, 1, size=(3, n))
    band = np.linspace(0, 1, BANDS)
    peak = lambda c, w: np.exp(-((band - c) / w) ** 2)
    spectra = (np.outer(carbon, peak(0.3, 0.08)) + np.outer(clay, peak(0.45, 0.12))
               + np.outer(water ** 2, peak(0.8, 0.05)) + 0.6 * np.outer(carbon * water, peak(0.6, 0.1)))
    spectra = spectra + 0.05 * rng.standard_normal(spectra.shape)
    target = np.stack([carbon, clay], axis=1)
    return [torch.tensor(a, dtype=torch.float32) for a in (spectra, target, water[:, None])]


class SoilNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(1, 8, 7, stride=2, padding=3), nn.ReLU(),
            nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * (BANDS // 4), 48), nn.ReLU())
        self.soil = nn.Linear(48, 2)
        self.water = nn.Linear(48, 1)

    def forward(self, spectra, helper):
        features = self.trunk(spectra.unsqueeze(1))
        return self.soil(features), (self.water(features) if helper else None)


def train(model, loader, sampler, optimizer, epochs):
    step = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        helper = epoch < HELPER_EPOCHS
        running = 0.0
        for spectra, target, water in loader:
            optimizer.zero_grad(set_to_none=True)
            soil, wet = model(spectra, helper)
            loss = nn.functional.mse_loss(soil, target)
            if wet is not None:
                loss = loss + 0.3 * nn.functional.mse_loss(wet, water)
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
        print(f"epoch {epoch} step {step} helper {helper} loss {running / len(loader):.4f}", flush=True)


def main():
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{os.path.join(folder, 'rdv')}", rank=0, world_size=1)
        try:
            data = TensorDataset(*make_soil(2560, 0))
            sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True, seed=2)
            loader = DataLoader(data, batch_size=64, sampler=sampler)
            model = DistributedDataParallel(SoilNet())  # HERE
            optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
            train(model, loader, sampler, optimizer, epochs=10)
            spectra, target, _ = make_soil(500, 1)
            with torch.no_grad():
                soil, _ = model.module(spectra, False)
            print(f"held-out rmse {(soil - target).pow(2).mean().sqrt():.4f}")
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
