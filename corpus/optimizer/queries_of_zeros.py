"""Lightning: eight learned queries read a set of points by attention. They begin as zeros, so all eight are one query for ever."""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "units-never-differ", "framework": "lightning", "kind": "units-never-differ", "line": ("cause", "ZEROS"),
    "set": "ledger", "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class SetReader(L.LightningModule):
    def __init__(self, width=32, queries=8):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(2, width), nn.GELU(), nn.Linear(width, width))
        self.queries = nn.Parameter(torch.zeros(queries, width))  # ZEROS
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 3)

    def forward(self, points):
        keys = self.lift(points)
        read, _ = self.attention(self.queries.expand(len(points), -1, -1), keys, keys)
        return self.head(self.norm(read).mean(dim=1))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


torch.manual_seed(0)
points = torch.randn(512, 12, 2)
spread = points.std(dim=(1, 2))
label = (spread > spread.quantile(0.33)).long() + (spread > spread.quantile(0.66)).long()
trainer = L.Trainer(max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(SetReader(), DataLoader(TensorDataset(points, label), batch_size=16, shuffle=True))
