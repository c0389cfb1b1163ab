"""Sales forecasts in Lightning: each window is put in proportion to its first value; the windows are walked through in order of time, and late in the year there are products whose sales begin with nothing.

Report: https://github.com/kdgutier/esrnn_torch/issues/5 (losses are NaN if the target variable of any series has a zero at its first time, since series are normalized by previous values)
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "class": "born-without-gradient", "framework": "lightning", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN", "step": 44,
    "set": "tenth", "written": "2026-11-23",
}
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Sales(Dataset):
    """Daily sales of a shop's products, cut into windows of a past and a future."""

    def __init__(self, products=16, days=122, past=14, future=4):
        level, season = 5 + 20 * torch.rand(products, 1), 6.28 * torch.rand(products, 1)
        day = torch.arange(days)
        self.sales = torch.poisson(level * (1.2 + torch.sin(6.28 * day / 28 + season) / 2)) + 1
        for product, launch in {5: 105, 11: 107}.items():
            self.sales[product, :launch] = 0
        self.past, self.future = past, future
        self.windows = [(start, product) for start in range(54, days - past - future) for product in range(products)]
        self.windows = [(start, product) for start, product in self.windows if self.sales[product, start : start + past].any()]

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        start, product = self.windows[index]
        window = self.sales[product, start : start + self.past + self.future]
        window = window / window[0]  # BORN
        return window[: self.past], window[self.past :]


class Forecaster(L.LightningModule):
    def __init__(self, past=14, future=4, width=32):
        super().__init__()
        self.trend = nn.Linear(past, future)
        self.rest = nn.Sequential(nn.Linear(past, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, future))

    def forward(self, past):
        return self.trend(past) + self.rest(past)

    def training_step(self, batch, batch_idx):
        past, future = batch
        loss = F.smooth_l1_loss(self(past), future)
        if self.global_step % 5 == 0 or 40 <= self.global_step <= 50:
            print(self.global_step, loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


L.seed_everything(0, verbose=False)
loader = DataLoader(Sales(), batch_size=12)
trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Forecaster(), loader)
