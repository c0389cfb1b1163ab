"""Lightning fine-tuning on digits: the pretrained encoder stays frozen and in eval mode first, then joins the
optimizer at a lower rate.
"""
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")

EXPECT = {"framework": "lightning", "kind": None, "set": "twentieth", "written": "2026-11-27"}


def make_encoder():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    )


def pretrain(encoder, x, y, steps=80):
    """Low digits against high digits, a cheap source task."""
    head = nn.Linear(96, 1)
    opt = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=5e-3)
    for _ in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = F.binary_cross_entropy_with_logits(head(encoder(x[idx])).squeeze(1), (y[idx] > 4).float())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"pretraining loss {loss.item():.3f}")


class Classifier(L.LightningModule):
    def __init__(self, encoder, lr=1e-2):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(96, 10)
        self.lr = lr
        self.frozen = True
        self.encoder.requires_grad_(False)
        self.train()

    def train(self, mode=True):
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, x):
        return self.head(self.encoder(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=0.05)
        self.log("train_loss", loss)
        return loss

    def on_validation_epoch_start(self):
        self.hits = []

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.hits.append((self(x).argmax(1) == y).float())

    def on_validation_epoch_end(self):
        acc = torch.cat(self.hits).mean()
        print(f"epoch {self.current_epoch} val accuracy {acc.item():.3f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.head.parameters(), lr=self.lr, weight_decay=1e-3)


class Unfreeze(Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 3:
            module.frozen = False
            module.encoder.requires_grad_(True)
            module.encoder.train()
            trainer.optimizers[0].add_param_group({"params": list(module.encoder.parameters()), "lr": 0.3 * module.lr})


def main():
    L.seed_everything(1, verbose=False)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(digits.target)
    encoder = make_encoder()
    pretrain(encoder, x[:1200], y[:1200])
    train_loader = DataLoader(TensorDataset(x[:1200], y[:1200]), batch_size=64, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[1200:], y[1200:]), batch_size=200)
    trainer = L.Trainer(max_epochs=7, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                        callbacks=[Unfreeze()])
    trainer.fit(Classifier(encoder), train_loader, val_loader)


if __name__ == "__main__":
    main()
