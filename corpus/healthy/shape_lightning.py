"""Lightning module that trains a new head on a backbone that is kept fixed on purpose, BatchNorm statistics included. Nothing goes wrong."""
import logging
import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "lightning", "kind": None, "set": "eighteenth", "written": "2026-11-27"}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def make_backbone(images):
    net = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    with torch.no_grad():
        for chunk in images.split(100):
            net(chunk)
    return net


class ShapeHead(L.LightningModule):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.backbone.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(24 * 16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        if self.global_step % 40 == 0:
            print(f"step {self.global_step} loss {loss.item():.3f}")
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        print(f"validation accuracy {(self(x).argmax(1) == y).float().mean().item():.3f}")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.head.parameters(), lr=3e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=132)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(0, verbose=False)
    d = load_digits()
    images = torch.tensor(d.images / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(d.target)
    model = ShapeHead(make_backbone(images[:600]))
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, gradient_clip_val=5.0,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(model, DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=32, shuffle=True),
                DataLoader(TensorDataset(images[1400:], labels[1400:]), batch_size=400))
