"""Gates of a seed sorter become hard after a warmup: a helper then gets the soft and the hard gates in the wrong order."""
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "straight-through-reversed", "framework": "lightning", "kind": "zero-grad", "line": ("cut", "HERE"),
    "set": "ledger", "written": "2026-11-29",
}


def with_gradient_of(soft, hard):
    with torch.no_grad():
        rest = hard - soft
    return soft + rest  # HERE


class Sorter(lightning.LightningModule):
    def __init__(self, features=12, gates=8, kinds=3):
        super().__init__()
        self.score, self.value, self.head = nn.Linear(features, gates), nn.Linear(features, gates), nn.Linear(gates, kinds)

    def forward(self, x):
        gate = torch.sigmoid(self.score(x))
        if self.global_step >= 150:
            gate = with_gradient_of(torch.round(gate), gate)
        return self.head(gate * self.value(x))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    lightning.seed_everything(5, verbose=False)
    x = torch.randn(1280, 12)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.7).long()
    trainer = lightning.Trainer(
        max_epochs=15, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Sorter(), DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True))


if __name__ == "__main__":
    main()
