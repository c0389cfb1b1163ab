"""Next-hours electricity load of four sites with one model; micro-batches come from the sites in turn.

Report: https://github.com/huggingface/accelerate/issues/616
"""
import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

EXPECT = {
    "kind": "gradient-not-used",
    "line": ("cleared", "CLEARED"),
    "framework": "accelerate",
    "plain": "the error of the last site falls, that of the other sites stays high",
    "set": "twentythird",
    "written": "2026-11-28",
}

SITES, PAST, AHEAD = 4, 24, 4


def make_series(hours=1500, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    rows = []
    for site, (phase, level, sign) in enumerate([(0, 0.0, 1.0), (6, 0.6, -1.0), (12, -0.6, 0.6), (18, 1.2, 1.4)]):
        daily = sign * np.sin(2 * np.pi * (t + phase) / 24) + 0.4 * np.sin(2 * np.pi * t / (12 + 5 * site))
        rows.append(level + daily + 0.15 * rng.normal(size=hours))
    return np.array(rows, dtype=np.float32)


def windows(series, start, stop):
    past, ahead, site = [], [], []
    for s in range(SITES):
        for t in range(start, stop - PAST - AHEAD, 2):
            past.append(series[s, t:t + PAST])
            ahead.append(series[s, t + PAST:t + PAST + AHEAD])
            site.append(s)
    return TensorDataset(torch.tensor(np.array(past)), torch.tensor(site), torch.tensor(np.array(ahead)))


class SitesInTurn(Sampler):
    def __init__(self, sites, batch_size, seed):
        self.by_site = [torch.nonzero(sites == s).squeeze(1) for s in range(SITES)]
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return SITES * (len(self.by_site[0]) // self.batch_size)

    def __iter__(self):
        mixed = [rows[torch.randperm(len(rows), generator=self.generator)] for rows in self.by_site]
        for start in range(0, len(mixed[0]) - self.batch_size + 1, self.batch_size):
            for rows in mixed:
                yield rows[start:start + self.batch_size].tolist()


class Forecaster(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.site = nn.Embedding(SITES, 8)
        self.net = nn.Sequential(nn.Linear(PAST + 8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, AHEAD))

    def forward(self, past, site):
        return self.net(torch.cat([past, self.site(site)], dim=1))


@torch.no_grad()
def error_by_site(model, data):
    past, site, ahead = data.tensors
    error = (model(past, site) - ahead).abs().mean(1)
    return [error[site == s].mean().item() for s in range(SITES)]


def main():
    set_seed(7)
    series = make_series()
    train, test = windows(series, 0, 1200), windows(series, 1200, 1500)
    loader = DataLoader(train, batch_sampler=SitesInTurn(train.tensors[1], 32, seed=7))
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=SITES)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(20):
        total = 0.0
        for past, site, ahead in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()  # CLEARED
                loss = F.mse_loss(model(past, site), ahead)
                accelerator.backward(loss)
                optimizer.step()
            total += loss.item()
        if epoch % 2 == 1:
            errors = "  ".join(f"{e:.3f}" for e in error_by_site(model, test))
            print(f"epoch {epoch:2d}  train loss {total / len(loader):.4f}  test error by site  {errors}")


if __name__ == "__main__":
    main()
