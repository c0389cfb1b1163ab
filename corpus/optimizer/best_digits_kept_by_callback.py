"""Lightning: a callback keeps the best weights on the CPU and puts them back at the end. The model is on the CPU already, so cpu() copies nothing."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "state-not-copied", "framework": "lightning", "kind": "state-not-copied", "line": ("cause", "KEPT"),
    "set": "ledger", "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class KeepBest(L.Callback):
    def __init__(self):
        self.lowest, self.weights = float("inf"), None

    def on_validation_epoch_end(self, trainer, module):
        loss = trainer.callback_metrics["valid"].item()
        if loss < self.lowest:
            self.lowest = loss
            self.weights = {name: value.detach().cpu() for name, value in module.state_dict().items()}  # KEPT

    def on_train_end(self, trainer, module):
        print("back to", round(self.lowest, 4))
        module.load_state_dict(self.weights)


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("valid", F.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.03)


torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
train, valid = torch.utils.data.random_split(data, [200, len(data) - 200])
trainer = L.Trainer(max_epochs=16, accelerator="cpu", callbacks=[KeepBest()], logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
trainer.fit(Digits(), DataLoader(train, batch_size=20, shuffle=True), DataLoader(valid, batch_size=200))
