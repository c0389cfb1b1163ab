"""Classify pump faults from vibration features with a small transformer encoder, trained by Lightning with a warm-up.

Report: https://github.com/ace-step/ACE-Step/pull/198
"""
import logging
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "schedule-too-slow",
    "line": ("returned", "HERE"),
    "plain": "the loss falls only very slowly and the accuracy at the end is poor, no message appears",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

WARMUP_STEPS = 120
FAULTS = 6
BANDS = 16


def make_records(n, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, FAULTS, size=n)
    spectra = rng.gamma(2.0, 0.5, size=(n, BANDS, 4))
    for i, fault in enumerate(label):
        base = 2 * fault + rng.integers(0, 3)
        spectra[i, base % BANDS, fault % 4] += 2.5
        spectra[i, (base + 5) % BANDS, (fault + 1) % 4] += 2.0
    return torch.tensor(spectra, dtype=torch.float32), torch.tensor(label)


class FaultNet(L.LightningModule):
    def __init__(self, width=32, lr=3e-3):
        super().__init__()
        self.lr = lr
        self.inp = nn.Linear(4, width)
        self.place = nn.Parameter(0.02 * torch.randn(BANDS, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, FAULTS)
        self.losses = []
        self.hits = []

    def forward(self, x):
        return self.out(self.body(self.inp(x) + self.place).mean(dim=1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.losses.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} train loss {np.mean(self.losses):.3f}")
        self.losses.clear()

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.hits.append((self(x).argmax(1) == y).float().mean().item())

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch} accuracy {np.mean(self.hits):.3f}")
        self.hits.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        warmup = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / WARMUP_STEPS))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": warmup}}  # HERE


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(4, verbose=False)
    train = DataLoader(TensorDataset(*make_records(2400, 0)), batch_size=48, shuffle=True)
    val = DataLoader(TensorDataset(*make_records(600, 1)), batch_size=200)
    trainer = L.Trainer(max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(FaultNet(), train, val)


if __name__ == "__main__":
    main()
