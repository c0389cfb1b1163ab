"""Thin sections of rock, reconstructed and classified at once, with manual optimization in Lightning.

Looks suspicious: three batches out of four leave every weight as it was, gradients are carried over from batch to batch without
being cleared, and two optimizers with different rates step one after the other. It is right: each of the four batches is scaled by
one quarter, the step, the clipping and the clearing come together after the fourth, the batches of an epoch divide by four, and the
two optimizers own disjoint parts, both of which get gradient from the one sum of losses.
The public reports of doubt: https://github.com/Lightning-AI/pytorch-lightning/issues/20215 and .../issues/7128
"""
import logging
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "both losses fall and the accuracy rises",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
ROCKS, EVERY = 4, 4


def sections(n, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, ROCKS, n)
    yy, xx = np.mgrid[0:12, 0:12] / 12.0
    images = np.zeros((n, 144), dtype=np.float32)
    for i, k in enumerate(kind):
        angle = rng.normal(0.4 + 0.7 * k, 0.15)
        wave = np.sin(2 * np.pi * (2 + 0.5 * k) * (xx * np.cos(angle) + yy * np.sin(angle)) + rng.uniform(0, 2 * np.pi))
        images[i] = (wave + rng.normal(0, 0.4, wave.shape)).ravel()
    return TensorDataset(torch.from_numpy(images), torch.from_numpy(kind))


class Sections(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.encode = nn.Sequential(nn.Linear(144, 96), nn.ReLU(), nn.Linear(96, 32), nn.ReLU())
        self.decode = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 144))
        self.classify = nn.Linear(32, ROCKS)
        self.rebuild_loss, self.label_loss = nn.MSELoss(), nn.CrossEntropyLoss()
        self.sums = [0.0, 0.0, 0]

    def losses(self, x, y):
        code = self.encode(x)
        return self.rebuild_loss(self.decode(code), x), self.label_loss(self.classify(code), y)

    def training_step(self, batch, batch_idx):
        rebuild, label = self.losses(*batch)
        self.manual_backward((rebuild + label) / EVERY)
        self.sums[0] += rebuild.item()
        self.sums[1] += label.item()
        self.sums[2] += 1
        if (batch_idx + 1) % EVERY == 0:
            for optimizer in self.optimizers():
                self.clip_gradients(optimizer, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
                optimizer.step()
                optimizer.zero_grad()

    def on_train_epoch_end(self):
        rebuild, label, n = self.sums
        self.sums = [0.0, 0.0, 0]
        print(f"epoch {self.current_epoch}: rebuild {rebuild / n:.4f}  label {label / n:.4f}")

    def validation_step(self, batch, batch_idx):
        x, y = batch
        share = (self.classify(self.encode(x)).argmax(1) == y).float().mean()
        if not self.trainer.sanity_checking:
            print(f"epoch {self.current_epoch}: accuracy {share:.3f}")

    def configure_optimizers(self):
        shared = list(self.encode.parameters()) + list(self.classify.parameters())
        return torch.optim.Adam(shared, lr=2e-3), torch.optim.Adam(self.decode.parameters(), lr=4e-3)


def main():
    L.seed_everything(22, verbose=False)
    torch.set_num_threads(1)
    train = DataLoader(sections(1920, 1), batch_size=20, shuffle=True)
    held_out = DataLoader(sections(600, 2), batch_size=600)
    trainer = L.Trainer(max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Sections(), train, held_out)


if __name__ == "__main__":
    main()
