"""Digit classifier in Lightning with OneCycleLR sized in steps; Lightning moves the schedule once per epoch, so the learning rate stays near its tiny starting value.

Report: https://github.com/pytorch/pytorch/issues/65417 (OneCycleLR with steps_per_epoch in Lightning is updated per epoch, only a small part of the schedule is followed)
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "schedule-too-slow", "line": ("cause", "OTHER"),
    "what": "OneCycleLR is built for one step per batch, but Lightning steps it per epoch by default, so the learning rate hardly leaves max_lr / 25; return it with interval 'step'",
    "set": "nineteenth", "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class DigitNet(L.LightningModule):
    def __init__(self, max_lr, epochs, steps_per_epoch):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10))
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.losses.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        lr = self.optimizers().param_groups[0]["lr"]
        print(f"epoch {self.current_epoch}  loss {sum(self.losses) / len(self.losses):.3f}  lr {lr:.5f}")
        self.losses.clear()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(  # OTHER
            optimizer,
            max_lr=self.hparams.max_lr,
            epochs=self.hparams.epochs,
            steps_per_epoch=self.hparams.steps_per_epoch,
        )
        return [optimizer], [scheduler]  # CAUSE


def main():
    L.seed_everything(0, verbose=False)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    perm = torch.randperm(len(x))
    tr, te = perm[:1280], perm[1280:]
    loader = DataLoader(TensorDataset(x[tr], y[tr]), batch_size=64, shuffle=True)
    epochs = 8
    model = DigitNet(max_lr=0.05, epochs=epochs, steps_per_epoch=len(loader))
    trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader)
    model.eval()
    with torch.no_grad():
        acc = (model(x[te]).argmax(1) == y[te]).float().mean().item()
    print(f"test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
