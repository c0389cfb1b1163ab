"""OneCycleLR sized in steps is handed to lightning without interval='step', so it advances once an epoch and the
learning rate never leaves its warm-up floor.

Report: Lightning-AI/pytorch-lightning issues 5584 and 4466, pytorch/pytorch issue 65417 (OneCycleLR advanced once an
epoch)
"""

import logging
import warnings

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "schedule-too-slow",
    "line": ("returned", "HERE"),
    "plain": "with: validation mse 0.103 after 720 steps, rate stuck near 1/100 of the peak; mended (interval step): 0.014",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def make_batches(count, seed):
    g = torch.Generator().manual_seed(seed)
    fat = torch.rand(count, generator=g) * 3 + 2.5
    protein = torch.rand(count, generator=g) * 1.5 + 2.8
    acid = torch.rand(count, generator=g) * 0.6 + 6.3
    hours = torch.rand(count, generator=g) * 20 + 4
    rennet = torch.rand(count, generator=g)
    season = torch.randint(0, 4, (count,), generator=g)
    yield_kg = 1.1 * fat + 2.4 * protein * torch.tanh(hours / 9) - 6 * (acid - 6.55).abs()
    yield_kg += 1.5 * torch.sin(4 * rennet) * (season.float() - 1.5) + 0.15 * torch.randn(count, generator=g)
    x = torch.stack([fat, protein, acid, hours, rennet], 1)
    x = (x - x.mean(0)) / x.std(0)
    x = torch.cat([x, F.one_hot(season, 4).float()], 1)
    y = (yield_kg - yield_kg.mean()) / yield_kg.std()
    return TensorDataset(x, y)


class YieldModel(lightning.LightningModule):
    def __init__(self, inputs, hidden=64, peak=0.15):
        super().__init__()
        self.peak = peak
        self.net = nn.Sequential(
            nn.Linear(inputs, hidden), nn.SiLU(),
            nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, 1),
        )
        self.history = []

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        self.history.append(loss.item())
        if self.global_step % 100 == 0:
            print(f"step {self.global_step:4d}  loss {loss.item():.4f}")
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_mse", F.mse_loss(self(x), y), prog_bar=False)

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.peak, momentum=0.9, weight_decay=1e-5)
        total = int(self.trainer.estimated_stepping_batches)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, max_lr=self.peak, total_steps=total, pct_start=0.25, div_factor=100
        )
        return [opt], [sched]  # HERE


def main():
    lightning.seed_everything(5, verbose=False)
    train = make_batches(1920, 1)
    valid = make_batches(600, 2)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    checks = DataLoader(valid, batch_size=300)
    model = YieldModel(inputs=train.tensors[0].shape[1])
    trainer = lightning.Trainer(
        max_epochs=24, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(model, loader, checks)
    print(f"steps {trainer.global_step}  validation mse {trainer.callback_metrics['val_mse'].item():.4f}")


if __name__ == "__main__":
    main()
