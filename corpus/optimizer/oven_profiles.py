"""OneCycleLR is returned to lightning without interval 'step', so it is stepped once per epoch and the learning rate
stays near max_lr/25 for the whole run.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/5631,
https://github.com/Lightning-AI/pytorch-lightning/issues/3869
"""

import logging
import math
import tempfile
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "schedule-too-slow",
    "line": ("returned", "HERE"),
    "plain": "with: lr 0.004 -> 0.0066 of max 0.1, final val mse 0.0457; with interval step: 0.0159",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def bake(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, 48)
    soak = torch.rand(n, 1, generator=g)
    rate = 2.0 + 5.0 * torch.rand(n, 1, generator=g)
    dip = 0.4 + 0.6 * torch.rand(n, 1, generator=g)
    curve = 1 - torch.exp(-rate * t) - 0.4 * dip * torch.exp(-((t - soak) ** 2) / 0.01)
    curve = curve + 0.03 * torch.randn(n, 48, generator=g)
    target = torch.cat([soak, rate / 7.0, torch.sin(math.pi * dip) * soak], dim=1)
    return TensorDataset(curve.unsqueeze(1), target)


class OvenReader(L.LightningModule):
    def __init__(self, max_lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.features = nn.Sequential(
            nn.Conv1d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(16, 24, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(24 * 12, 48), nn.ReLU(), nn.Linear(48, 3))
        self.history = []

    def forward(self, x):
        return self.head(self.features(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.mse_loss(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_mse", F.mse_loss(self(x), y), batch_size=len(x))

    def on_validation_epoch_end(self):
        if self.trainer.sanity_checking:
            return
        value = self.trainer.callback_metrics["val_mse"].item()
        lr = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.history.append(value)
        print(f"epoch {self.current_epoch:2d} lr {lr:.5f} val mse {value:.5f}")

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.hparams.max_lr, momentum=0.9, weight_decay=1e-5)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt,
            max_lr=self.hparams.max_lr,
            total_steps=self.trainer.estimated_stepping_batches,
        )
        return [opt], [{"scheduler": sched}]  # HERE


def main():
    L.seed_everything(7, verbose=False)
    train = DataLoader(bake(2048, 1), batch_size=64, shuffle=True)
    val = DataLoader(bake(512, 2), batch_size=256)
    with tempfile.TemporaryDirectory() as root:
        trainer = L.Trainer(
            max_epochs=14,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=root,
        )
        model = OvenReader()
        trainer.fit(model, train, val)
    print(f"final val mse {model.history[-1]:.5f}")


if __name__ == "__main__":
    main()
