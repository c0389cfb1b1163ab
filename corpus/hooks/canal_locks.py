"""On_train_epoch_start registers one more gradient hook (x 0.5) on every body parameter in each epoch, so from epoch to
epoch the body's gradients are halved again and it stops learning.

Report: a kind of mistake (register_hook inside the training loop), compare github.com/huggingface/peft pull request
2761 for hooks registered repeatedly
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "hooks-pile-up",
    "line": ("hook", "HERE"),
    "plain": "validation accuracy 0.402 after 24 epochs as it is, 0.990 with the hook registered in the first epoch only",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(17, verbose=False)
BODY_SCALE = 0.5


def lock_readings(n):
    """Gate sensors of a canal lock -> one of four operating states (interleaved arcs)."""
    angle = torch.rand(n) * 2.5
    arm = torch.randint(0, 4, (n,))
    radius = 0.3 + angle
    theta = 2.0 * angle + arm * torch.pi / 2
    xy = torch.stack([radius * theta.cos(), radius * theta.sin()], 1)
    xy = xy + 0.06 * torch.randn(n, 2)
    return xy, arm


class LockState(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
        )
        self.head = nn.Linear(64, 4)
        self.hits = []

    def forward(self, x):
        return self.head(self.body(x))

    def on_train_epoch_start(self):
        for p in self.body.parameters():
            p.register_hook(lambda grad: grad * BODY_SCALE)  # HERE

    def training_step(self, batch, _):
        x, y = batch
        return F.cross_entropy(self(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        self.hits.append((self(x).argmax(1) == y).float())

    def on_validation_epoch_end(self):
        acc = torch.cat(self.hits).mean().item()
        self.hits.clear()
        if self.current_epoch % 4 == 3:
            print(f"epoch {self.current_epoch + 1:2d}  valid acc {acc:.3f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.04, momentum=0.9)


def main():
    train = TensorDataset(*lock_readings(640))
    valid = TensorDataset(*lock_readings(600))
    model = LockState()
    trainer = L.Trainer(
        max_epochs=24,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(
        model,
        DataLoader(train, batch_size=32, shuffle=True),
        DataLoader(valid, batch_size=200),
    )


if __name__ == "__main__":
    main()
