"""Recognising gaits from three-axis accelerometer windows with a small convolutional network in Lightning.

Follows the public report https://github.com/pytorch/pytorch/issues/65417 (see also Lightning-AI/pytorch-lightning#5631)
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
    "line": ("returned", "cause"),
    "plain": "the loss falls only slowly and the accuracy stays poor; the learning rate in the log hardly moves",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
GAITS = 5


def windows(n, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, GAITS, size=n)
    t = np.arange(64) / 32.0
    rows = np.zeros((n, 3, 64), dtype=np.float32)
    for i, k in enumerate(kind):
        base = 1.0 + 0.45 * k + rng.normal(0, 0.08)
        for axis in range(3):
            phase = rng.uniform(0, 2 * np.pi)
            rows[i, axis] = np.sin(2 * np.pi * base * t + phase) * (0.6 + 0.2 * axis)
            rows[i, axis] += 0.3 * np.sin(2 * np.pi * 2 * base * t + 2 * phase)
    rows += rng.normal(0, 0.5, size=rows.shape).astype(np.float32)
    return TensorDataset(torch.from_numpy(rows), torch.from_numpy(kind))


class GaitNet(L.LightningModule):
    def __init__(self, peak):
        super().__init__()
        self.peak = peak
        self.body = nn.Sequential(nn.Conv1d(3, 16, 9, padding=4), nn.ReLU(), nn.MaxPool1d(2),
                                  nn.Conv1d(16, 32, 9, padding=4), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten())
        self.head = nn.Linear(32, GAITS)
        self.criterion = nn.CrossEntropyLoss()
        self.seen, self.right = 0, 0

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = self.criterion(self(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.right += int((self(x).argmax(1) == y).sum())
        self.seen += len(y)

    def on_validation_epoch_end(self):
        accuracy = self.right / self.seen
        self.seen, self.right = 0, 0
        if not self.trainer.sanity_checking:
            rate = self.optimizers().param_groups[0]["lr"]
            print(f"epoch {self.current_epoch}: rate {rate:.5f}  accuracy {accuracy:.3f}")

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.peak)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.peak, cycle_momentum=False,
                                                       total_steps=self.trainer.estimated_stepping_batches)
        return [optimizer], [schedule]  # <-- cause


class Report(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        print(f"epoch {trainer.current_epoch}: train loss {trainer.callback_metrics['train_loss']:.4f}")


def main():
    L.seed_everything(11, verbose=False)
    torch.set_num_threads(1)
    train = DataLoader(windows(1200, 1), batch_size=32, shuffle=True)
    held_out = DataLoader(windows(500, 2), batch_size=250)
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[Report()],
                        gradient_clip_val=2.0)
    trainer.fit(GaitNet(peak=0.2), train, held_out)


if __name__ == "__main__":
    main()
