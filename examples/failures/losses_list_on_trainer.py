"""Trainer keeps self.history.append({"loss": loss, ...}) of every step for a plot at the end."""

import torch
from torch import nn

EXPECT = {"kind": "graph-retained", "line": ("held", "HOLDS")}


class Trainer:
    def __init__(self, model):
        self.model, self.opt, self.history = model, torch.optim.Adam(model.parameters()), []

    def training_step(self, batch):
        x, y = batch
        pred = self.model(x)
        return {"loss": nn.functional.mse_loss(pred, y), "mae": (pred - y).abs().mean()}

    def fit(self, loader):
        for batch in loader:
            output = self.training_step(batch)
            self.opt.zero_grad()
            output["loss"].backward()
            self.opt.step()
            self.history.append(output)  # HOLDS


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
Trainer(model).fit([(torch.randn(8, 5), torch.randn(8, 1)) for _ in range(12)])
