"""Lightning module whose clipping function remembers its mask in a global variable; it clips student and projection.
"""
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "state-outside-ctx", "kind": "wrong-backward", "apply_marker": "APPLIED", "set": "ledger",
    "written": "2026-11-27", "framework": "lightning",
}

MASK = None


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        global MASK
        MASK = x.abs() < 1
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        return grad * MASK


class Student(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder, self.projection = nn.Linear(6, 8), nn.Linear(8, 8)

    def training_step(self, batch, number):
        (x,) = batch
        hidden = Clip.apply(self.encoder(x))  # APPLIED
        return (Clip.apply(2 * self.projection(hidden)) - 0.5).square().mean()  # APPLIED

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-2)


torch.manual_seed(0)
data = DataLoader(TensorDataset(3 * torch.randn(64, 6)), batch_size=8)
trainer = lightning.Trainer(
    max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    accelerator="cpu",
)
trainer.fit(Student(), data)
