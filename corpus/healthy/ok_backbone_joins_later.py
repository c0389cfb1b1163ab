"""Healthy: fine-tuning in Lightning by its own callback; the backbone is frozen for two epochs but for its batch norms, then the rest of it is thawed and comes into the optimizer as a group with a lower rate.

Report it resembles: https://github.com/Lightning-AI/pytorch-lightning/issues/6879 (whether the callback for fine-tuning can add a parameter to the optimizer more than once)
"""
import logging
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import BackboneFinetuning
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"class": "healthy", "framework": "lightning", "kind": "none", "set": "tenth", "written": "2026-11-23"}
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Digits(L.LightningModule):
    def __init__(self, width=16, rate=3e-3):
        super().__init__()
        self.rate = rate
        self.backbone = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        x, label = batch
        loss = F.cross_entropy(self(x), label)
        if self.global_step % 15 == 0:
            print(self.current_epoch, self.global_step, loss.item(), "groups", len(self.optimizers().param_groups))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam([p for p in self.parameters() if p.requires_grad], lr=self.rate)


L.seed_everything(0, verbose=False)
digits = load_digits()
images, labels = torch.tensor(digits.images[:960], dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target[:960])
loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
thaw = BackboneFinetuning(unfreeze_backbone_at_epoch=2, lambda_func=lambda epoch: 1.2, backbone_initial_ratio_lr=0.1, train_bn=True)
trainer = L.Trainer(max_epochs=4, accelerator="cpu", callbacks=[thaw], logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Digits(), loader)
