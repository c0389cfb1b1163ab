"""A trunk that was trained on one kind of signal is frozen, and Lightning trains a head on another kind. The trunk's
statistics drift, because train mode stays on for the whole module."""
import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "BatchNorm buffers of a frozen backbone change",
    "kind": "frozen-buffer-changes",
    "line": ["cause", "cause"],
    "what": "requires_grad_(False) freezes the trunk's parameters; its BatchNorm1d layers stay in train mode under Lightning.",
    "symptom": "no error; the first head breaks",
    "framework": "lightning",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(12)
torch.set_num_threads(1)


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.BatchNorm1d(16))

    def forward(self, x):
        return self.layers(x)


class Second(L.LightningModule):
    def __init__(self, trunk):
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(16, 2)
        self.trunk.requires_grad_(False)  # <-- cause

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self.head(self.trunk(x)), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters(), lr=5e-3)


def signals(offset, scale):
    x = torch.randn(1280, 16)
    y = (x[:, :4].sum(1) > 0).long()
    return TensorDataset(offset + scale * x, y)


trunk, head = Trunk(), nn.Linear(16, 2)
optimizer = torch.optim.Adam([*trunk.parameters(), *head.parameters()], lr=5e-3)
for x, y in DataLoader(signals(0.0, 1.0), 32):
    loss = F.cross_entropy(head(trunk(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
trainer = L.Trainer(
    max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    accelerator="cpu")
trainer.fit(Second(trunk), DataLoader(signals(4.0, 3.0), 32))
print("mean of the running means:", trunk.layers[1].running_mean.abs().mean().item())
