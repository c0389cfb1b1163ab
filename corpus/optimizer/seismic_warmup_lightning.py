"""A LightningModule that warms its rate up over 80 batches. Lightning steps the scheduler once per epoch, so the
warm-up has hardly begun when training ends.
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "schedule over batches stepped per epoch",
    "kind": "schedule-too-slow",
    "line": ["cause", "cause"],
    "what": "configure_optimizers returns the scheduler without interval='step', so Lightning steps it once per epoch.",
    "symptom": "no error; the loss hardly falls, the rate stays below a tenth of 0.02",
    "framework": "lightning",
    "set": "ledger",
    "written": "2026-11-27",
}


class Picker(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 2))

    def training_step(self, batch, index):
        wave, label = batch
        return nn.functional.cross_entropy(self.layers(wave), label)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 80))  # <-- cause
        return [optimizer], [warmup]


def main():
    torch.manual_seed(8)
    waves = torch.randn(480, 1, 64)
    labels = (waves[:, 0, :32].std(1) > waves[:, 0, 32:].std(1)).long()
    loader = DataLoader(TensorDataset(waves, labels), batch_size=24, shuffle=True)
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")}
    lightning.Trainer(max_epochs=5, accelerator="cpu", **quiet).fit(Picker(), loader)


if __name__ == "__main__":
    main()
