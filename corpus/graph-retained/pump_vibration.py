"""A dilated convolution that predicts the next vibration sample of a pump, in Lightning, with a running mean of the error
without the added noise.

The process grows by hundreds of megabytes within one epoch.
Follows https://github.com/pdearena/pdearena/pull/4
"""
import logging
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "graph-retained",
    "line": ("held", "HERE"),
    "plain": "training is fine, but the resident memory climbs by about 12 MB with every step until the epoch ends",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

WINDOW = 256


def resident_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2 ** 20


def vibration(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(WINDOW + 1) / 256.0
    speed = rng.uniform(8, 20, size=(n, 1))
    phase = rng.uniform(0, 6.28, size=(n, 1))
    wave = np.sin(6.28 * speed * t + phase) + 0.4 * np.sin(6.28 * 3 * speed * t) + 0.1 * rng.normal(size=(n, WINDOW + 1))
    wave = torch.tensor(wave, dtype=torch.float32)
    return TensorDataset(wave[:, :-1], wave[:, 1:])


class Causal(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((dilation, 0), 0.0)
        self.conv = nn.Conv1d(channels, channels, 2, dilation=dilation)

    def forward(self, x):
        return x + torch.relu(self.conv(self.pad(x)))


class Pump(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Conv1d(1, 32, 1)
        self.stack = nn.Sequential(*[Causal(32, d) for d in (1, 2, 4, 8, 16)])
        self.outlet = nn.Conv1d(32, 1, 1)
        self.running = 0.0
        self.seen = 0

    def forward(self, wave):
        return self.outlet(self.stack(self.inlet(wave.unsqueeze(1)))).squeeze(1)

    def on_train_epoch_start(self):
        self.running, self.seen = 0.0, 0

    def training_step(self, batch, batch_idx):
        wave, following = batch
        noisy = wave + 0.1 * torch.randn_like(wave)
        loss = nn.functional.mse_loss(self(noisy), following)
        clean = nn.functional.mse_loss(self(wave), following)
        self.running = self.running + clean  # HERE
        self.seen += 1
        if self.seen % 20 == 0:
            mean = float(self.running) / self.seen
            print(f"epoch {self.current_epoch} step {self.seen} mean clean loss {mean:.4f} memory {resident_mb():.0f} MB")
        return loss

    def validation_step(self, batch, batch_idx):
        wave, following = batch
        self.log("held", nn.functional.mse_loss(self(wave), following))

    def on_validation_epoch_end(self):
        print(f"held loss {float(self.trainer.callback_metrics.get('held', float('nan'))):.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(1, verbose=False)
    train = DataLoader(vibration(1200, 0), batch_size=20, shuffle=True)
    held = DataLoader(vibration(100, 1), batch_size=50)
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(Pump(), train, held)


if __name__ == "__main__":
    main()
