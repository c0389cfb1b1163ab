"""Fine-tunes a pretrained digit CNN with Lightning on digits 5-9; healthy: the trunk is frozen and kept in eval mode at
first, its last block is unfrozen after two epochs and added to the optimizer as a new group, and the learning rate
follows a cosine to zero.

Report: https://github.com/Lightning-AI/pytorch-lightning/issues/450 (how to unfreeze layers during training)
"""
import logging
import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "lightning", "kind": None, "set": "twentysecond", "written": "2026-11-28"}

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
EPOCHS, UNFREEZE = 6, 2


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


def pretrain(trunk, x, y, steps=60):
    net = nn.Sequential(trunk, nn.Linear(128, 5))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(steps):
        idx = torch.randint(len(x), (64,))
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"pretrain loss {loss.item():.3f}")


class FineTuner(L.LightningModule):
    def __init__(self, trunk, lr=3e-3):
        super().__init__()
        self.trunk, self.head, self.lr = trunk.requires_grad_(False), nn.Linear(128, 5), lr

    def forward(self, x):
        return self.head(self.trunk(x))

    def on_train_epoch_start(self):
        self.trunk.eval()
        if self.current_epoch == UNFREEZE:
            self.trunk[1].requires_grad_(True)
            self.optimizers().optimizer.add_param_group(
                {"params": list(self.trunk[1].parameters()), "lr": self.lr * 0.3})

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        for group, base in zip(self.optimizers().param_groups, (self.lr, self.lr * 0.3)):
            frac = torch.tensor((self.global_step + 1) / self.trainer.estimated_stepping_batches)
            group["lr"] = base * 0.5 * (1 + torch.cos(frac * torch.pi)).item()
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_acc", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def on_train_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} loss {m['train_loss']:.3f} val acc {m.get('val_acc', 0):.3f} "
              f"lr {self.optimizers().param_groups[0]['lr']:.2e}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.head.parameters(), lr=self.lr)


def main():
    L.seed_everything(3, verbose=False)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y)
    trunk = nn.Sequential(block(1, 16), block(16, 32), nn.Flatten())
    pretrain(trunk, x[y < 5], y[y < 5])
    xn, yn = x[y >= 5], y[y >= 5] - 5
    train = DataLoader(TensorDataset(xn[:600], yn[:600]), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(xn[600:], yn[600:]), batch_size=512)
    trainer = L.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(FineTuner(trunk), train, val)


if __name__ == "__main__":
    main()
