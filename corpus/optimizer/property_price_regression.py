"""Regression on a table of made-up property features with Lightning.

Report: https://github.com/pytorch/pytorch/issues/65417
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "schedule-too-slow",
    "line": ("returned", "RETURNED"),
    "framework": "lightning",
    "plain": "the loss falls far too slowly; the logged learning rate hardly changes in the whole run",
    "set": "twentythird",
    "written": "2026-11-28",
}


def load_table(seed=0, n=2600):
    x, y = make_friedman1(n_samples=n, n_features=12, noise=0.5, random_state=seed)
    x = torch.tensor(x, dtype=torch.float32)
    y = torch.tensor(y, dtype=torch.float32)
    x = (x - x[:2000].mean(0)) / x[:2000].std(0)
    y = (y - y[:2000].mean()) / y[:2000].std()
    return TensorDataset(x[:2000], y[:2000]), TensorDataset(x[2000:], y[2000:])


class PriceModel(L.LightningModule):
    def __init__(self, n_features=12, width=64, max_lr=0.05):
        super().__init__()
        self.max_lr = max_lr
        self.net = nn.Sequential(
            nn.Linear(n_features, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )
        self.squares, self.variance, self.seen = 0.0, 0.0, 0
        self.running = []

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        self.running.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        if self.current_epoch % 3 == 0:
            lr = self.optimizers().param_groups[0]["lr"]
            mean = sum(self.running) / len(self.running)
            print(f"epoch {self.current_epoch:2d}  train loss {mean:.4f}  lr {lr:.6f}")
        self.running.clear()

    def on_validation_epoch_start(self):
        self.squares, self.variance = 0.0, 0.0

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.squares += (self(x) - y).pow(2).sum().item()
        self.variance += (y - y.mean()).pow(2).sum().item()

    def on_validation_epoch_end(self):
        r2 = 1 - self.squares / self.variance
        self.log("val_r2", r2)
        if not self.trainer.sanity_checking and self.current_epoch % 3 == 0:
            print(f"epoch {self.current_epoch:2d}  validation R2 {r2:.4f}")

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.max_lr, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=self.max_lr,
            total_steps=int(self.trainer.estimated_stepping_batches),
            div_factor=100,
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler}}  # RETURNED


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(4, verbose=False)
    train, valid = load_table()
    model = PriceModel()
    trainer = L.Trainer(max_epochs=16, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), DataLoader(valid, batch_size=600))
    print(f"final validation R2: {trainer.callback_metrics['val_r2']:.4f}")


if __name__ == "__main__":
    main()
