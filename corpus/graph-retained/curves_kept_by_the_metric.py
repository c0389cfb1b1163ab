"""Regression in Lightning with a metric of its own for the spread of errors: it collects what it is given in a list state, and from the third epoch on it is given predictions as they come out of the network in the training step.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/4098 (memory leak with a metric with list state: the graph of what is put in stays until the epoch ends)
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Metric

EXPECT = {
    "class": "late-retention", "framework": "lightning", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 60,
    "set": "ninth", "written": "2026-11-23",
}
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class ErrorQuantiles(Metric):
    full_state_update = False

    def __init__(self, quantiles=(0.1, 0.5, 0.9)):
        super().__init__()
        self.register_buffer("at", torch.tensor(quantiles))
        self.add_state("predictions", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, predictions, targets):
        self.predictions.append(predictions)  # HOLDS
        self.targets.append(targets)

    def compute(self):
        error = (torch.cat(self.predictions) - torch.cat(self.targets)).detach().flatten()
        return torch.quantile(error, self.at)


class Forecaster(L.LightningModule):
    def __init__(self, width=32, quantiles_from=2):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * width, 4))
        self.quantiles_from, self.quantiles = quantiles_from, ErrorQuantiles()

    def forward(self, history):
        return self.net(history[:, None])

    def training_step(self, batch, batch_idx):
        history, future = batch
        prediction = self(history)
        if self.current_epoch >= self.quantiles_from:
            self.quantiles.update(prediction, future)
        return F.huber_loss(prediction, future)

    def on_train_epoch_end(self):
        if self.current_epoch >= self.quantiles_from:
            print(self.current_epoch, "graphs held:", sum(p.grad_fn is not None for p in self.quantiles.predictions), self.quantiles.compute())
            self.quantiles.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


L.seed_everything(0, verbose=False)
t = torch.arange(20.0)
phase, pace = 6.28 * torch.rand(480, 1), 0.2 + 0.4 * torch.rand(480, 1)
series = torch.sin(pace * t + phase) + 0.05 * torch.randn(480, 20)
loader = DataLoader(TensorDataset(series[:, :16], series[:, 16:]), batch_size=16, shuffle=True)
trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Forecaster(), loader)
