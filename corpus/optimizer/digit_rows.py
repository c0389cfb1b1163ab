"""Lightning GRU that reads digits row by row with a one-cycle schedule; the schedule advances once per epoch, so the rate stays at its warm-up start.
Report: https://github.com/pytorch/pytorch/issues/65417 (OneCycleLR in Lightning is stepped per epoch, only a fraction of the schedule is followed; also Lightning issue 5631: the default interval is "epoch")

OneCycle over 240 steps is stepped 6 times: lr goes 0.012 -> about 0.013 instead of up to 0.3 and back.
Validation accuracy ends far below a copy with {"scheduler": ..., "interval": "step"}.
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "schedule-too-slow", "line": ("cause", "SCHED"),
    "what": "OneCycleLR is returned without interval='step', so Lightning steps it once per epoch and the learning rate never leaves its tiny warm-up start; return {'scheduler': sched, 'interval': 'step'}",
    "set": "twentysecond", "written": "2026-11-28",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class RowReader(L.LightningModule):
    def __init__(self, max_lr=0.3):
        super().__init__()
        self.max_lr = max_lr
        self.gru = nn.GRU(8, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1])

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            lr = self.trainer.optimizers[0].param_groups[0]["lr"]
            print(f"epoch {self.current_epoch}: val acc {self.trainer.callback_metrics['val_acc']:.3f} lr {lr:.4f}")

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.max_lr, momentum=0.9)
        sched = torch.optim.lr_scheduler.OneCycleLR(  # SCHED
            opt, max_lr=self.max_lr, total_steps=self.trainer.estimated_stepping_batches)
        return [opt], [sched]  # CAUSE


def main():
    L.seed_everything(1, verbose=False)
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    train = TensorDataset(x[:1280], y[:1280])
    val = TensorDataset(x[1280:], y[1280:])
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(RowReader(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=256))


if __name__ == "__main__":
    main()
