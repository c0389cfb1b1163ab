"""Online forecaster for a group of stations that reads its window from a numpy ring buffer.

Story: an MLP predicts the next sample of every station from the last 24.  During the first
200 ticks it learns after every tick, later the losses of four ticks are put together before
the update to have calmer gradients.  The second setting never does as well as hoped and
nobody sees why: nothing raises.
Based on the discussion in pytorch/pytorch#6597 ("if the Tensor is needed in backward, but the
NumPy array that shares storage is modified, we can't track it") and on forum questions on
torch.from_numpy with reused buffers.
"""
import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

EXPECT = {
    "class": "x", "kind": "silent-mutation", "mutating_marker": "MUT", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

logger = logging.getLogger("stream")


@dataclass
class StreamConfig:
    stations: int = 32
    window: int = 24
    ticks: int = 800
    warmup_ticks: int = 200
    group: int = 4
    lr: float = 2e-3


class Plant:
    """Coupled oscillators with a little noise."""

    def __init__(self, stations, seed=5):
        self.rng = np.random.default_rng(seed)
        self.freq = self.rng.uniform(0.15, 0.5, stations)
        self.phase = self.rng.uniform(0, 6.28, stations)
        self.t = 0

    def read(self):
        self.t += 1
        wave = np.sin(self.freq * self.t + self.phase) + 0.4 * np.sin(0.05 * self.t)
        return (wave + 0.05 * self.rng.standard_normal(len(wave))).astype(np.float32)


class Ring:
    def __init__(self, stations, window):
        self.data = np.zeros((stations, window), dtype=np.float32)

    def push(self, sample):
        self.data[:] = np.concatenate([self.data[:, 1:], sample[:, None]], axis=1)  # MUT

    def as_tensor(self):
        return torch.from_numpy(self.data)


class Forecaster(nn.Module):
    def __init__(self, window, hidden=64):
        super().__init__()
        self.inp = nn.Linear(window, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        return self.out(torch.tanh(self.mid(h))).squeeze(-1)


class OnlineLearner:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
        self.pending = []

    def learn(self, loss, tick):
        self.pending.append(loss)
        needed = 1 if tick < self.cfg.warmup_ticks else self.cfg.group
        if len(self.pending) >= needed:
            total = torch.stack(self.pending).mean()
            self.optimizer.zero_grad()
            total.backward()
            self.optimizer.step()
            self.pending.clear()


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    cfg = StreamConfig()
    plant, ring = Plant(cfg.stations), Ring(cfg.stations, cfg.window)
    for _ in range(cfg.window):
        ring.push(plant.read())
    model = Forecaster(cfg.window)
    learner = OnlineLearner(model, cfg)
    recent = []
    for tick in range(cfg.ticks):
        prediction = model(ring.as_tensor())
        sample = plant.read()
        loss = (prediction - torch.from_numpy(sample)).pow(2).mean()
        recent.append(loss.item())
        learner.learn(loss, tick)
        ring.push(sample)
        if tick % 100 == 99:
            logger.info("tick %d mse of the last 100: %.4f", tick + 1, sum(recent[-100:]) / 100)


if __name__ == "__main__":
    main()
