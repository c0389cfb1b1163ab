"""Fine-tunes an encoder pretrained on parity to read digits with Lightning, head first and the encoder from epoch 2 on; the encoder never moves although it is unfrozen.

Report: https://github.com/skorch-dev/skorch/issues/261 (an optimizer made from filter(lambda p: p.requires_grad) does not know parameters that are unfrozen later; https://github.com/fastai/fastai/issues/2133 says the same: the optimizer must be created again, at creation it only takes trainable parameters)
What is seen: the encoder's parameters have gradients from step 120 on (40 steps of pretraining, then 80 of the head), but they are bit for bit the same at the end, and the validation
accuracy stays at the level of the head alone.
"""
import logging
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "lightning", "kind": "parameter-not-in-optimizer", "line": ("thawed", "CAUSE"),
    "what": "the optimizer was built only from the parameters that were trainable at the start, so the encoder unfrozen at epoch 2 is never updated; add it with add_param_group when it is unfrozen",
    "set": "nineteenth", "written": "2026-11-27",
}
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def make_encoder():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten())


class StagedClassifier(L.LightningModule):
    def __init__(self, encoder, unfreeze_at=2, lr=1e-2):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(12, 10)
        self.unfreeze_at, self.lr = unfreeze_at, lr
        self.encoder.requires_grad_(False)

    def forward(self, x):
        return self.head(self.encoder(x))

    def on_train_epoch_start(self):
        if self.current_epoch == self.unfreeze_at:
            self.encoder.requires_grad_(True)  # CAUSE
            print("encoder unfrozen at step", self.global_step)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("acc", (self(x).argmax(1) == y).float().mean())

    def on_train_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch} loss {m['loss'].item():.4f} acc {m['acc'].item():.3f}")

    def configure_optimizers(self):
        params = filter(lambda p: p.requires_grad, self.parameters())  # OTHER
        return torch.optim.Adam(params, lr=self.lr)


def main():
    L.seed_everything(4, verbose=False)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]

    encoder = make_encoder()
    aux = nn.Linear(12, 2)
    pre = torch.optim.Adam([*encoder.parameters(), *aux.parameters()], lr=3e-3)
    for i in range(40):
        idx = torch.randint(0, 1280, (64,))
        loss = F.cross_entropy(aux(encoder(x[idx])), y[idx] % 2)
        pre.zero_grad()
        loss.backward()
        pre.step()
    print(f"pretraining on parity, last loss {loss.item():.3f}")

    model = StagedClassifier(encoder)
    before = torch.cat([p.detach().flatten() for p in encoder.parameters()]).clone()
    train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(x[1280:], y[1280:]), batch_size=517)
    trainer = L.Trainer(max_epochs=7, accelerator="cpu", logger=False, enable_checkpointing=False, num_sanity_val_steps=0,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, train, val)
    after = torch.cat([p.detach().flatten() for p in encoder.parameters()])
    print("largest change in the encoder:", (after - before).abs().max().item())


if __name__ == "__main__":
    main()
