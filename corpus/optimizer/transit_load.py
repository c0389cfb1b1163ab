"""Forecast of tomorrow's load class of bus lines, trained with lightning and a linear warm-up.

Report: https://github.com/ace-step/ACE-Step/pull/198
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "schedule-too-slow",
    "line": ("returned", "HERE"),
    "framework": "lightning",
    "plain": "the loss falls very slowly, validation accuracy after all epochs is poor",
    "set": "twentysixth",
    "written": "2026-11-29",
}

LINES, DAYS, CLASSES = 8, 14, 4
EPOCHS, BATCH, WARMUP = 6, 64, 150


def make_history(count, generator):
    season = torch.randn(count, LINES, 1, generator=generator)
    noise = torch.randn(count, LINES, DAYS, generator=generator)
    load = season * torch.linspace(0.4, 1.2, DAYS) + 0.6 * noise
    mix = torch.randn(LINES, DAYS, generator=torch.Generator().manual_seed(40)) / 3
    gate = torch.randn(LINES, DAYS, generator=torch.Generator().manual_seed(41)) / 3
    score = (load * mix).sum((1, 2)) + (load * gate).sum((1, 2)).abs()
    edges = torch.quantile(score, torch.tensor([0.25, 0.5, 0.75]))
    return load, torch.bucketize(score, edges)


class LoadForecast(L.LightningModule):
    def __init__(self, hidden=96, rate=2e-3):
        super().__init__()
        self.rate = rate
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(LINES * DAYS, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, CLASSES)
        )
        self.losses, self.hits = [], []

    def forward(self, load):
        return self.net(load)

    def training_step(self, batch, index):
        load, label = batch
        loss = F.cross_entropy(self(load), label)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        load, label = batch
        self.hits.append((self(load).argmax(1) == label).float())

    def on_validation_epoch_end(self):
        accuracy = torch.cat(self.hits).mean().item()
        mean = sum(self.losses) / max(1, len(self.losses))
        print(f"epoch {self.current_epoch}  steps {self.global_step:4d}  loss {mean:.4f}  validation accuracy {accuracy:.3f}")
        self.hits.clear()
        self.losses.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.rate, weight_decay=0.01)
        warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: min(1.0, (count + 1) / WARMUP))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warmup, "name": "warmup"}}  # HERE


def main():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    L.seed_everything(12)
    train = make_history(4480, torch.Generator().manual_seed(1))
    check = make_history(1500, torch.Generator().manual_seed(2))
    train_loader = DataLoader(TensorDataset(*train), batch_size=BATCH, shuffle=True)
    check_loader = DataLoader(TensorDataset(*check), batch_size=500)
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(LoadForecast(), train_loader, check_loader)


if __name__ == "__main__":
    main()
