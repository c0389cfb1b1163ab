"""Yield of sugar beets with Lightning. The factor of ExponentialLR is above 1 and counts every batch: the rate passes the
limit of stability after some hundred steps, and the loss grows for sixty more until it overflows."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "schedule raises the rate",
    "kind": "learning-rate-raised",
    "line": ["cause", "HERE"],
    "framework": "lightning",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(44, verbose=False)


def plots(n):
    """Field plot: eight soil and weather values -> sugar yield."""
    x = torch.randn(n, 8)
    y = torch.sin(x[:, 0]) + 0.6 * x[:, 1] * x[:, 2] - torch.tanh(x[:, 3]) + 0.3 * x[:, 4]
    return x, (y + 0.05 * torch.randn(n)).unsqueeze(1)


class RandomFeatures(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.register_buffer("freq", torch.randn(inputs, width) * 0.6)
        self.register_buffer("phase", torch.rand(width) * 6.28)

    def forward(self, x):
        return torch.cos(x @ self.freq + self.phase)


class YieldModel(L.LightningModule):
    def __init__(self, width=256):
        super().__init__()
        self.lift = RandomFeatures(8, width)
        self.out = nn.Linear(width, 1)
        self.losses = []

    def forward(self, x):
        return self.out(self.lift(x))

    def training_step(self, batch, i):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        self.losses.append(loss.item())
        if self.global_step % 25 == 0:
            norm = sum(float(p.norm()) ** 2 for p in self.parameters()) ** 0.5
            print(f"step {self.global_step:3d}  loss {loss.item():.4g}  weight norm {norm:.4g}")
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=0.02)
        sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=1.01)  # HERE
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    model = YieldModel()
    trainer = L.Trainer(
        max_steps=500,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(*plots(4800)), batch_size=48, shuffle=True))
    print(f"last 20 losses: {sum(model.losses[-20:]) / 20:.4f}")


if __name__ == "__main__":
    main()
