"""Regression of the density of reeds with Lightning: the plateau scheduler waits for its loss to rise, and cuts the rate."""
import logging
import math
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
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


def survey(n, seed):
    gen = torch.Generator().manual_seed(seed)
    depth = torch.rand(n, 1, generator=gen) * 3
    flow = torch.rand(n, 1, generator=gen) * 2 - 1
    shade = torch.rand(n, 1, generator=gen)
    salt = torch.rand(n, 1, generator=gen)
    density = (
        torch.sin(2.2 * depth) * torch.exp(-flow.pow(2))
        + 0.8 * torch.cos(4 * flow * depth) * shade
        - (salt - 0.4).abs() * depth
    )
    density = density + 0.03 * torch.randn(n, 1, generator=gen)
    return TensorDataset(torch.cat([depth, flow, shade, salt], dim=1), density)


class ReedModel(L.LightningModule):
    def __init__(self, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(4, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 1),
        )
        self.history = []

    def training_step(self, batch, idx):
        x, y = batch
        return F.mse_loss(self.net(x), y)

    def validation_step(self, batch, idx):
        x, y = batch
        self.log("val_loss", F.mse_loss(self.net(x), y), on_epoch=True)

    def on_validation_epoch_end(self):
        if self.trainer.sanity_checking:
            return
        self.history.append(float(self.trainer.callback_metrics["val_loss"]))

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            opt, mode="max", factor=0.1, patience=3, threshold=1e-3  # HERE
        )
        return {
            "optimizer": opt,
            "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss", "interval": "epoch"},
        }


def main():
    L.seed_everything(3, verbose=False)
    train = DataLoader(survey(1024, 0), batch_size=32, shuffle=True)
    val = DataLoader(survey(512, 1), batch_size=256)
    model = ReedModel()
    trainer = L.Trainer(
        max_epochs=24,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, train, val)
    for i in range(0, len(model.history), 5):
        print(f"epoch {i:3d}  val {model.history[i]:.4f}")
    final = model.history[-1]
    print(f"final val {final:.4f}  rmse {math.sqrt(final):.3f}")


if __name__ == "__main__":
    main()
