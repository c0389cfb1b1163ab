"""Trains a GRU forecaster for spiky load curves with Lightning; the gradient clipping has no effect and the spikes throw the weights around.
Report: https://github.com/simchowitzlabpublic/nano-world-model/pull/22 (clip_grad_norm_ inside training_step runs before backward, so it
sees None or the last step's gradient; clipping did nothing)
Effect: gradient norms far above 0.5 reach the optimizer, the median loss ends at 1.4 and the error at 0.74 (0.02 and 0.11 in the mended copy).
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "clipping-without-effect", "line": ("cause", "CAUSE"),
    "what": "clip_grad_norm_ is called in training_step, before Lightning's backward, so the gradients the optimizer uses are never clipped (use gradient_clip_val or configure_gradient_clipping)",
    "set": "twentieth", "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def load_curves(n=480, length=24):
    t = torch.arange(length + 1) / 4.0
    phase = torch.rand(n, 1) * 6.28
    y = torch.sin(t + phase) + 0.05 * torch.randn(n, length + 1)
    spikes = (torch.rand(n, 1) < 0.02).float() * (20.0 + 10.0 * torch.rand(n, 1))
    y[:, -1:] += spikes
    return y[:, :-1].unsqueeze(-1), y[:, -1:]


class Forecaster(L.LightningModule):
    def __init__(self, hidden=32, lr=0.05, max_norm=0.5):
        super().__init__()
        self.save_hyperparameters()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)
        self.losses = []

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        torch.nn.utils.clip_grad_norm_(self.parameters(), self.hparams.max_norm)  # CAUSE
        self.losses.append(loss.item())
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: median loss {torch.tensor(self.losses[-30:]).median().item():.3f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)


if __name__ == "__main__":
    L.seed_everything(2, verbose=False)
    train = DataLoader(TensorDataset(*load_curves()), batch_size=16, shuffle=True)
    module = Forecaster()
    trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                        enable_model_summary=False)
    trainer.fit(module, train)
    x, y = load_curves(256)
    with torch.no_grad():
        err = (module(x) - y).abs().median().item()
    print(f"median absolute error on new curves {err:.3f}")
