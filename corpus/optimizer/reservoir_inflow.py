"""Forecasts of a reservoir's inflow with Lightning: R2 rises, and the plateau scheduler waits for it to fall."""
import logging
import math
import warnings

import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "metric of the wrong direction",
    "kind": "plateau-wrong-direction",
    "line": ["cause", "HERE"],
    "framework": "lightning",
    "set": "twentyninth",
    "written": "2026-11-29",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

PAST, AHEAD = 24, 5


def inflow(days, gen):
    """Daily inflow: rain passes through two stores, with season and snow melt."""
    rain = torch.rand(days, generator=gen)
    rain = torch.where(rain > 0.7, -torch.log(torch.rand(days, generator=gen)), torch.zeros(days))
    fast = slow = 0.0
    flow = []
    for d in range(days):
        season = 1 + 0.6 * math.sin(2 * math.pi * d / 120)
        fast = 0.7 * fast + rain[d].item() * season
        slow = 0.97 * slow + 0.1 * fast
        flow.append(0.5 * fast + slow + 0.4 * max(0.0, math.sin(2 * math.pi * d / 60)) ** 4)
    flow = torch.tensor(flow)
    return torch.stack([rain, flow / flow.std()], dim=1)


def windows(series):
    x, y = [], []
    for i in range(len(series) - PAST - AHEAD):
        past = series[i : i + PAST]
        forecast_rain = series[i + PAST : i + PAST + AHEAD, 0]
        x.append(torch.cat([past.reshape(-1), forecast_rain]))
        y.append(series[i + PAST : i + PAST + AHEAD, 1])
    return torch.stack(x), torch.stack(y)


class Inflow(L.LightningModule):
    def __init__(self, width=48, lr=5e-4):
        super().__init__()
        self.lr = lr
        self.rnn = nn.GRU(2, width, batch_first=True)
        self.cell = nn.GRUCell(2, width)
        self.out = nn.Linear(width, 1)
        self.seen = []

    def forward(self, x):
        past = x[:, : 2 * PAST].reshape(-1, PAST, 2)
        rain = x[:, 2 * PAST :]
        _, h = self.rnn(past)
        h, last, outs = h[0], past[:, -1, 1:], []
        for k in range(AHEAD):
            h = self.cell(torch.cat([rain[:, k : k + 1], last], dim=1), h)
            last = last + self.out(h)
            outs.append(last)
        return torch.cat(outs, dim=1)

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_validation_epoch_start(self):
        self.seen.clear()

    def validation_step(self, batch, _):
        x, y = batch
        self.seen.append((self(x), y))

    def on_validation_epoch_end(self):
        p = torch.cat([a for a, _ in self.seen])
        y = torch.cat([b for _, b in self.seen])
        r2 = 1 - ((p - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
        self.log("val_r2", r2)

    def on_train_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} loss {m['train_loss']:.4f} val R2 {m['val_r2']:.4f}")

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.lr)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.1, patience=2)  # HERE
        return {"optimizer": opt, "lr_scheduler": {"scheduler": plateau, "monitor": "val_r2"}}


if __name__ == "__main__":
    L.seed_everything(6, verbose=False)
    gen = torch.Generator().manual_seed(6)
    data = inflow(1000, gen)
    train = DataLoader(TensorDataset(*windows(data[:800])), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(*windows(data[800:])), batch_size=128)
    trainer = L.Trainer(
        max_epochs=18, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(Inflow(), train, val)
