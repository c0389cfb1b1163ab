"""Lightning forecaster for machine sensors; validates with averaged weights that a callback swaps in and back out. Nothing goes wrong.
Report: https://github.com/nihalsid/stylegan2-ada-lightning/pull/3 (store/restore of parameters around an EMA validation)

The step-wise cosine schedule ends at zero on purpose.
"""
import logging
import math
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "lightning", "kind": None, "set": "twentysecond", "written": "2026-11-28"}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class AveragedWeights(L.Callback):
    def __init__(self, decay=0.95):
        self.decay, self.shadow, self.stored = decay, None, None

    def on_fit_start(self, trainer, pl_module):
        self.shadow = [p.detach().clone() for p in pl_module.parameters()]

    @torch.no_grad()
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        for s, p in zip(self.shadow, pl_module.parameters()):
            s.lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def on_validation_start(self, trainer, pl_module):
        self.stored = [p.detach().clone() for p in pl_module.parameters()]
        for p, s in zip(pl_module.parameters(), self.shadow):
            p.copy_(s)

    @torch.no_grad()
    def on_validation_end(self, trainer, pl_module):
        for p, s in zip(pl_module.parameters(), self.stored):
            p.copy_(s)
        self.stored = None


class SensorModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 24, 5, padding=2), nn.ReLU())
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.out = nn.Linear(32, 3)

    def forward(self, x):
        h = self.conv(x.transpose(1, 2)).transpose(1, 2)
        return self.out(self.rnn(h)[0][:, -1])

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_mse", nn.functional.mse_loss(self(x), y))

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            print(f"epoch {self.current_epoch} val mse {self.trainer.callback_metrics['val_mse']:.4f}")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=5e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def windows(n, seed, size=24):
    g = torch.Generator().manual_seed(seed)
    t0 = torch.rand(n, 1, generator=g) * 100
    t = t0 + torch.arange(size + 1)
    series = torch.stack([torch.sin(2 * math.pi * t / 12), torch.cos(2 * math.pi * t / 7), torch.sin(t / 5) ** 2], dim=-1)
    series = series + 0.1 * torch.randn(series.shape, generator=g)
    return TensorDataset(series[:, :-1], series[:, -1])


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    trainer = L.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
                        num_sanity_val_steps=0, callbacks=[AveragedWeights()])
    trainer.fit(SensorModel(), DataLoader(windows(1024, 1), batch_size=32, shuffle=True),
                DataLoader(windows(256, 2), batch_size=256))
