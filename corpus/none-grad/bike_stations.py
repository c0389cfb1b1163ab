"""Hires at bicycle stations by hour of the week: a low-rank model with a factor for each station and for each hour.

Follows the public page https://runebook.dev/zh/docs/pytorch/generated/torch.nn.parameter.parameter (a custom weight that never changes)
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "unregistered-parameter",
    "line": ("cut", "cause"),
    "plain": "the error falls a little and then stays far above the noise; parameters() lists fewer weights than expected",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

STATIONS, HOURS, RANK = 80, 168, 4


def hires(n, seed):
    rng = np.random.default_rng(seed)
    hour = np.arange(HOURS)
    day, clock = hour // 24, hour % 24
    work = (day < 5) * (np.exp(-(clock - 8) ** 2 / 6) - np.exp(-(clock - 18) ** 2 / 6))
    leisure = (day >= 5) * np.exp(-(clock - 14) ** 2 / 18)
    night = np.exp(-(clock - 23) ** 2 / 4)
    basis = np.stack([work, leisure, night, np.sin(2 * np.pi * clock / 24)])
    mix = rng.normal(size=(STATIONS, 4)) * np.array([2.0, 1.5, 1.5, 1.0])
    truth = mix @ basis
    station, when = rng.integers(0, STATIONS, n), rng.integers(0, HOURS, n)
    value = truth[station, when] + rng.normal(0, 0.15, n)
    return TensorDataset(torch.from_numpy(station), torch.from_numpy(when), torch.tensor(value, dtype=torch.float32))


class StationFactors(nn.Module):
    def __init__(self):
        super().__init__()
        self.by_station = nn.Parameter(torch.randn(RANK, STATIONS) * 0.3).t()  # <-- cause
        self.by_hour = nn.Parameter(torch.randn(HOURS, RANK) * 0.3)
        self.station_level = nn.Embedding(STATIONS, 1)
        self.hour_level = nn.Embedding(HOURS, 1)
        nn.init.zeros_(self.station_level.weight)
        nn.init.zeros_(self.hour_level.weight)

    def forward(self, station, when):
        match = (self.by_station[station] * self.by_hour[when]).sum(1)
        return match + self.station_level(station).squeeze(1) + self.hour_level(when).squeeze(1)


@torch.no_grad()
def error(model, rows):
    station, when, value = rows.tensors
    return (model(station, when) - value).pow(2).mean().sqrt().item()


def main():
    torch.manual_seed(14)
    torch.set_num_threads(1)
    rows = hires(16000, 14)
    parts = [TensorDataset(*(t[:14000] for t in rows.tensors)), TensorDataset(*(t[14000:] for t in rows.tensors))]
    loader = DataLoader(parts[0], batch_size=200, shuffle=True)
    model = StationFactors()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=14)
    criterion = nn.MSELoss()
    print(f"spread of the hires {rows.tensors[2].std():.3f}")
    for epoch in range(14):
        total = 0.0
        for station, when, value in loader:
            optimizer.zero_grad()
            loss = criterion(model(station, when), value)
            loss.backward()
            optimizer.step()
            total += loss.item()
        schedule.step()
        if epoch % 2 == 1:
            print(f"epoch {epoch}: loss {total / len(loader):.4f}  held-out error {error(model, parts[1]):.4f}")


if __name__ == "__main__":
    main()
