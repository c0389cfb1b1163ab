"""Lightning gives each of two plateau schedulers a metric of its direction: an accuracy and a loss that starts to rise
when the model overfits."""
import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "metric of the right direction",
    "kind": None,
    "framework": "lightning",
    "set": "ledger",
    "written": "2026-11-29",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Classifier(L.LightningModule):
    def __init__(self, mode, monitor):
        super().__init__()
        self.mode, self.monitor = mode, monitor
        self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))

    def training_step(self, batch, _):
        x, y = batch
        return cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        out = self.net(x)
        self.log_dict({"val_loss": cross_entropy(out, y), "val_acc": (out.argmax(1) == y).float().mean()})

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        scheduler = ReduceLROnPlateau(optimizer, mode=self.mode, patience=2, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": self.monitor}}


def examples(count):
    x = torch.randn(count, 8)
    labels = torch.where(torch.rand(count) < 0.2, torch.randint(0, 3, (count,)), x[:, :3].argmax(dim=1))
    return TensorDataset(x, labels)


L.seed_everything(5, verbose=False)
train, held_out = DataLoader(examples(160), 16, shuffle=True), DataLoader(examples(200), 200)
for mode, monitor in (("max", "val_acc"), ("min", "val_loss")):
    trainer = L.Trainer(
        max_epochs=15,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Classifier(mode, monitor), train, held_out)
