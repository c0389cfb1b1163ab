"""Lightning training of a narrow digit encoder in two phases: head first, encoder unfrozen after two epochs - but the encoder never moves.
Report: https://github.com/fastai/fastai/issues/2133 (the optimizer takes only the trainable parameters when it is created, so it must be created again after unfreezing)
configure_optimizers filters by requires_grad while the encoder is frozen; the later unfreeze gives the encoder gradients, but no
optimizer holds its parameters: they stay bit for bit the same and the accuracy stays at the level of the head alone (0.43 instead of 0.89).
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
    "framework": "lightning", "kind": "parameter-not-in-optimizer", "line": ("thawed", "CAUSE"),
    "what": "the encoder is unfrozen after the optimizer was built from only the trainable parameters, so its weights are in no param group and are never updated; add a param group on unfreezing",
    "set": "twentyfirst", "written": "2026-11-27",
}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class FineTuner(L.LightningModule):
    def __init__(self, encoder, unfreeze_epoch=2):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(8, 10)
        self.unfreeze_epoch = unfreeze_epoch
        self.encoder.requires_grad_(False)

    def forward(self, x):
        return self.head(self.encoder(x))

    def on_train_epoch_start(self):
        if self.current_epoch == self.unfreeze_epoch:
            self.encoder.requires_grad_(True)  # CAUSE
            print(f"epoch {self.current_epoch}: encoder unfrozen at step {self.global_step}")

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("acc", (self(x).argmax(1) == y).float().mean())

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            print(f"epoch {self.current_epoch} val accuracy {self.trainer.callback_metrics['acc'].item():.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(filter(lambda p: p.requires_grad, self.parameters()), lr=5e-3)  # OTHER


def make_encoder():
    encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8), nn.ReLU())
    with torch.no_grad():
        encoder[2].bias.fill_(0.1)
    return encoder


def main():
    L.seed_everything(0, verbose=False)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    y = torch.tensor(digits.target)
    encoder = make_encoder()
    before = [p.detach().clone() for p in encoder.parameters()]
    model = FineTuner(encoder)
    train = DataLoader(TensorDataset(x[:1200], y[:1200]), batch_size=32, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(x[1200:], y[1200:]), batch_size=597)
    trainer = L.Trainer(max_epochs=7, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, train, val)
    moved = sum((a - b).norm().item() for a, b in zip(before, encoder.parameters()))
    print(f"encoder moved by {moved:.4f}")


if __name__ == "__main__":
    main()
