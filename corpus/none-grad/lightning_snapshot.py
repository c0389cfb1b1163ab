"""Lightning, with an embedding snapshot of the backbone in each validation. The first epoch is fine, then training gets
slow: after the first validation the backbone does not learn any more, only the head does, because the snapshot calls
backbone.freeze() and nothing ever calls unfreeze()."""
import logging
import warnings
import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "frozen by accident in mid-training",
    "kind": "none-grad",
    "line": ["cut", "cause"],
    "what": "backbone.freeze() in the validation hook sets requires_grad=False on the backbone for good, so from step 60 on (after the first validation) only the head is trained.",
    "symptom": "no error; the backbone's weights stop moving after the first validation, its gradients are None",
    "set": "sixteenth",
    "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(20, verbose=False)
torch.set_num_threads(1)


class Backbone(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 16), nn.Tanh())

    def forward(self, x):
        return self.net(x)


class Classifier(L.LightningModule):
    def __init__(self, probe):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(16, 10)
        self.probe = probe
        self.snapshots = []
        self.losses = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.head(self.backbone(x)), y)
        self.losses.append(loss.item())
        return loss

    def on_validation_epoch_start(self):
        self.backbone.freeze()  # <-- cause
        self.snapshots.append(self.backbone(self.probe).clone())

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self.head(self.backbone(x))
        self.log("val_acc", (logits.argmax(1) == y).float().mean())

    def on_validation_epoch_end(self):
        moved = 0.0
        if len(self.snapshots) > 1:
            moved = (self.snapshots[-1] - self.snapshots[-2]).abs().max().item()
        acc = self.trainer.callback_metrics["val_acc"].item()
        print(f"step {self.global_step:3d}  train loss {sum(self.losses[-60:]) / 60:.4f}  val acc {acc:.3f}"
              f"  embedding moved by {moved:.5f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-4)


digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)
train = DataLoader(TensorDataset(x[:1440], y[:1440]), batch_size=24, shuffle=True)
val = DataLoader(TensorDataset(x[1440:], y[1440:]), batch_size=357)

module = Classifier(probe=x[1440:1500])
trainer = L.Trainer(
    max_epochs=5, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
trainer.fit(module, train, val)
