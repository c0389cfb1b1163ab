"""Wine cultivars from chemistry, with features that should not tell the bottling year apart; trained by Lightning. The
layer in front of the adversary scales and turns the gradient in a method of the module, which nobody calls."""
import logging
import warnings

import lightning as L
import torch
from sklearn.datasets import load_wine
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "backward-never-called", "line": ("cause", "NEVER"), "framework": "lightning", "set": "ledger",
    "written": "2026-11-29", "plain": "the adversary reads the year from the features ever better",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class AdversarialGate(nn.Module):
    """Identity in the forward; turns and scales the gradient in the backward."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return x.view_as(x)

    def backward(self, g):  # NEVER
        return g.neg() * self.weight


class Wines(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 8))
        self.cultivar = nn.Linear(8, 3)
        self.year = nn.Sequential(AdversarialGate(0.3), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch, _):
        x, cultivar, year = batch
        features = self.body(x)
        adversary = F.binary_cross_entropy_with_logits(self.year(features).squeeze(1), year)
        self.log("adversary", adversary)
        return F.cross_entropy(self.cultivar(features), cultivar) + adversary

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    L.seed_everything(1, verbose=False)
    data = load_wine()
    x = torch.tensor(data.data, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    year = (torch.rand(len(x)) < 0.5).float()
    x[:, 4] += 1.5 * year
    loader = DataLoader(TensorDataset(x, torch.tensor(data.target), year), batch_size=32, shuffle=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    L.Trainer(max_epochs=10, accelerator="cpu", **quiet).fit(Wines(), loader)


if __name__ == "__main__":
    main()
