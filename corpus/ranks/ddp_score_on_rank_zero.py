"""Two processes in Lightning with a metric of torchmetrics: at the end of an epoch the first rank computes it for its printout, which gathers its state from both; the other one has gone on.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/4529 (metric.compute() under `if self.global_rank == 0`, with a barrier after it; which way is right)
"""
import datetime
import logging
import warnings

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassF1Score

EXPECT = {
    "class": "ddp", "framework": "lightning", "kind": "rank-desync", "waiting_marker": "WAITS", "step": 30,
    "set": "tenth", "written": "2026-11-23",
}
warnings.simplefilter("ignore")
for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Sorter(L.LightningModule):
    def __init__(self, features=6, classes=3, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))
        self.f1 = MulticlassF1Score(num_classes=classes)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, kind = batch
        logits = self(x)
        self.f1.update(logits.detach(), kind)
        return F.cross_entropy(logits, kind)

    def on_train_epoch_end(self):
        if self.global_rank == 0:
            print("epoch", self.current_epoch, "F1", self.f1.compute().item(), flush=True)  # WAITS
        dist.barrier()  # WAITS
        self.f1.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def parcels(n):
    """Size, weight and four stamps; sorted by a rule that mixes them."""
    x = torch.randn(n, 6)
    return TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2:].sum(1) > 1).long())


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    loader = DataLoader(parcels(1920), batch_size=32, shuffle=True)
    strategy = DDPStrategy(start_method="fork", process_group_backend="gloo", timeout=datetime.timedelta(seconds=5))
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", devices=2, strategy=strategy, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Sorter(), loader)
