"""Trains a small vision transformer on digit images with Lightning; it stays far from trained because the learning rate hardly leaves the first rungs of its warmup.

Report: https://github.com/ace-step/ACE-Step/pull/198 (without "interval": "step" the Lightning trainer calls lr_scheduler.step() once per epoch, and a warmup of 4000 steps takes 4000 epochs)
What is seen: the learning rate is 1/50 of the intended one in the whole first epoch and 6/50 in the last; the validation accuracy ends
far below that of the same run with interval "step".
"""
import logging
import math
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "schedule-too-slow", "line": ("cause", "OTHER"),
    "what": "the warmup schedule counts steps but Lightning steps it once per epoch, so the learning rate stays tiny; return the scheduler with interval 'step'",
    "set": "nineteenth", "written": "2026-11-27",
}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class PatchTransformer(L.LightningModule):
    def __init__(self, lr=1e-3, warmup_steps=50, total_steps=264):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Linear(4, 32)
        self.pos = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        self.cls = nn.Parameter(torch.zeros(1, 1, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        patches = x.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(x), 16, 4)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), self.embed(patches)], 1) + self.pos
        return self.head(self.encoder(tokens)[:, 0])

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.last_loss = loss.item()
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        acc = (self(x).argmax(1) == y).float().mean()
        self.log("val_acc", acc)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            lr = self.optimizers().param_groups[0]["lr"]
            print(f"epoch {self.current_epoch} loss {self.last_loss:.4f} "
                  f"val_acc {self.trainer.callback_metrics['val_acc'].item():.3f} lr {lr:.2e}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)

        def factor(step):
            if step < self.hparams.warmup_steps:
                return (step + 1) / self.hparams.warmup_steps
            done = (step - self.hparams.warmup_steps) / (self.hparams.total_steps - self.hparams.warmup_steps)
            return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)  # OTHER
        return [optimizer], [scheduler]  # CAUSE


def main():
    L.seed_everything(0, verbose=False)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x))
    train = TensorDataset(x[order[:1408]], y[order[:1408]])
    val = TensorDataset(x[order[1408:]], y[order[1408:]])
    model = PatchTransformer()
    trainer = L.Trainer(max_epochs=6, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=389))


if __name__ == "__main__":
    main()
