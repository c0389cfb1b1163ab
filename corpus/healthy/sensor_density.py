"""Density of healthy readings of four sensors with affine coupling layers, in Lightning, used to find strange readings.

Looks suspicious: the loss goes below zero and keeps falling, and the last layer of every coupling starts with zero weights, so
that the first layers get no gradient at the first step. Both are right: a density may be larger than one, so its negative
logarithm may be negative, and the zero start is the identity. Held-out readings get the same loss, strange ones a far larger one.
Follows https://github.com/bayesiains/nflows/issues/76 and https://github.com/vislearn/FrEIA/issues/16
"""
import logging
import math
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "nothing is wrong",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

SENSORS = 4


def readings(n, seed, strange=False):
    rng = np.random.default_rng(seed)
    a = rng.uniform(0, 2 * math.pi, size=n)
    load = rng.normal(size=n) * 0.2
    x = np.stack([np.cos(a), np.sin(a), np.cos(a) * np.sin(a) + load, load ** 2 - 0.5 * np.sin(a)], axis=1) * 0.5
    x = x + 0.02 * rng.normal(size=x.shape)
    if strange:
        x = np.stack([rng.permutation(x[:, j]) for j in range(SENSORS)], axis=1)
    return torch.tensor(x, dtype=torch.float32)


class Coupling(nn.Module):
    def __init__(self, keep, width=48):
        super().__init__()
        self.register_buffer("mask", keep)
        self.net = nn.Sequential(nn.Linear(SENSORS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, 2 * SENSORS))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        scale, shift = self.net(x * self.mask).chunk(2, dim=1)
        scale = 2.0 * torch.tanh(scale / 2.0) * (1 - self.mask)
        return x * scale.exp() + shift * (1 - self.mask), scale.sum(1)


class Density(L.LightningModule):
    def __init__(self, layers=6):
        super().__init__()
        patterns = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1]]).float()
        self.layers = nn.ModuleList(Coupling(patterns[i % 4]) for i in range(layers))
        self.total, self.count = 0.0, 0

    def surprise(self, x):
        grown = torch.zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            grown = grown + log_det
        return 0.5 * (x ** 2).sum(1) + 0.5 * SENSORS * math.log(2 * math.pi) - grown

    def training_step(self, batch, batch_idx):
        loss = self.surprise(batch[0]).mean()
        self.total += loss.item()
        self.count += 1
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("held", self.surprise(batch[0]).mean())

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {self.total / self.count:.4f} held {self.trainer.callback_metrics['held']:.4f}")
        self.total, self.count = 0.0, 0

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(3, verbose=False)
    train = DataLoader(TensorDataset(readings(5000, 0)), batch_size=100, shuffle=True)
    held = DataLoader(TensorDataset(readings(1000, 1)), batch_size=500)
    model = Density()
    trainer = L.Trainer(max_epochs=10, accelerator="cpu", logger=False, enable_checkpointing=False, gradient_clip_val=5.0,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(model, train, held)
    with torch.no_grad():
        usual, odd = model.surprise(readings(1000, 2)), model.surprise(readings(1000, 2, strange=True))
    limit = usual.quantile(0.95)
    print(f"usual {usual.mean():.3f} strange {odd.median():.3f} strange readings found {(odd > limit).float().mean():.3f}")


if __name__ == "__main__":
    main()
