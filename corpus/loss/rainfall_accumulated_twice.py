"""Rainfall from radar maps with Lightning: training_step divides by the number of accumulated batches, and so does the trainer."""
import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "loss-divided-twice", "framework": "lightning", "kind": "loss-divided-twice", "line": ("cause", "DIVIDES"),
    "set": "ledger", "written": "2026-11-27",
}


class Rainfall(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 1))

    def loss_of(self, batch):
        maps, rain = batch
        error = nn.functional.smooth_l1_loss(self.net(maps).squeeze(1), rain)
        penalty = sum(weight.square().sum() for weight in self.net.parameters())
        return error + 1e-4 * penalty

    def training_step(self, batch, index):
        loss = self.loss_of(batch)
        self.log("train", loss)
        return {"loss": loss / self.trainer.accumulate_grad_batches}  # DIVIDES

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main():
    pl.seed_everything(2)
    maps = torch.rand(480, 1, 8, 8)
    rain = 4 * maps[:, 0, :4].mean((1, 2)) - maps[:, 0, 4:].mean((1, 2))
    loader = DataLoader(TensorDataset(maps, rain), batch_size=12, shuffle=True)
    trainer = pl.Trainer(max_epochs=4, accumulate_grad_batches=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Rainfall(), loader)


if __name__ == "__main__":
    main()
