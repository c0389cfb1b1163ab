"""Manual optimization in Lightning. The clipping stands after the optimizer's step, where the gradients have been used
already; the next zero_grad throws the clipped ones away."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "clipping after the step",
    "kind": "clipping-without-effect",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)
torch.set_num_threads(1)


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 10))

    def training_step(self, batch, at):
        x, y = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = F.cross_entropy(self.net(x), y)
        self.manual_backward(loss)
        optimizer.step()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.25)  # <-- cause

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
trainer = L.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Digits(), DataLoader(data, batch_size=64, shuffle=True))
