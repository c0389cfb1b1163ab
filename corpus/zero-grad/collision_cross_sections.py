"""Collision cross sections of peptides with a Lightning module whose last layer ends in a ReLU, because the sizes are positive: four missing values coded as -999 pull every output below zero, all predictions are 0 and nothing moves any more.

Report: https://github.com/ProteomicsML/ProteomicsML/pull/203 (LSTM network returning constantly 0: ReLU at the final linear layer, pre-ReLU output always negative)
"""
import warnings

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "late-silent", "framework": "lightning", "kind": "zero-grad", "cut_marker": "CUT", "step": 41,
    "set": "eleventh", "written": "2026-11-23",
}
warnings.filterwarnings("ignore")
RESIDUES, LONGEST = 21, 12


class PeptideSizes(LightningModule):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(RESIDUES, 12)
        self.lstm = nn.LSTM(12, width, batch_first=True)
        self.dense = nn.Linear(width, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, peptide):
        h, _ = self.lstm(self.embed(peptide))
        h = F.leaky_relu(self.dense(h[:, -1]), 0.1)
        return torch.relu(self.out(h)).squeeze(-1)  # CUT

    def training_step(self, batch, index):
        peptide, size = batch
        loss = F.mse_loss(self(peptide), size)
        if self.global_step % 8 == 0:
            print(f"step {self.global_step} loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def peptides(count=2560):
    """Runs of the instrument one after the other; in one of them four ions were not seen."""
    peptide = torch.randint(0, RESIDUES, (count, LONGEST))
    size = torch.rand(RESIDUES)[peptide].sum(1) / 4
    size[1290:1294] = -999.0
    return TensorDataset(peptide, size)


torch.manual_seed(4)
trainer = Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(PeptideSizes(), DataLoader(peptides(), batch_size=32))
