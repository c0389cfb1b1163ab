"""Transfer on the digits with Lightning: frozen backbone first, thawed by a callback.

Story: the backbone is pretrained on the digits 0-4, then a head for 5-9 is fitted with the
backbone frozen and a callback thaws it at epoch 3.  The callback prints that it did, yet the
backbone in the final checkpoint is the pretrained one, bit for bit.
Based on the discussions around Lightning-AI/pytorch-lightning#514 (groups and unfreezing) and
the reason for `BaseFinetuning.unfreeze_and_add_param_group` (#5744).
"""
import logging
import warnings

import lightning as L
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "x", "kind": "parameter-not-in-optimizer", "parameters": ["backbone.0.weight", "backbone.0.bias", "backbone.2.weight", "backbone.2.bias"], "optimizer_marker": "OPT", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def split_digits():
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    low = y < 5
    return TensorDataset(x[low], y[low]), TensorDataset(x[~low], y[~low] - 5)


def make_backbone(width=64):
    return nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU())


def pretrain(backbone, dataset, epochs=5):
    net = nn.Sequential(backbone, nn.Linear(64, 5))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(epochs):
        for x, y in DataLoader(dataset, batch_size=64, shuffle=True):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


class Transfer(L.LightningModule):
    def __init__(self, backbone, lr=1e-3):
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.head = nn.Linear(64, 5)
        self.lr = lr

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        trainable = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trainable, lr=self.lr)  # OPT
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


class Thaw(L.Callback):
    def __init__(self, at_epoch):
        self.at_epoch = at_epoch

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == self.at_epoch:
            module.backbone.requires_grad_(True)
            print(f"epoch {trainer.current_epoch}: backbone thawed")


class Report(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        print(f"epoch {trainer.current_epoch}: loss {trainer.callback_metrics['train_loss']:.3f}")


def main():
    L.seed_everything(0, verbose=False)
    low, high = split_digits()
    backbone = make_backbone()
    print("pretrain loss", pretrain(backbone, low))
    trainer = L.Trainer(
        max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[Report(), Thaw(3)],
    )
    trainer.fit(Transfer(backbone), DataLoader(high, batch_size=32, shuffle=True))


if __name__ == "__main__":
    main()
