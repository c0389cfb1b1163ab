"""Kinds of grain are told apart in a Lightning module that distils from a teacher. The teacher should be an older copy, but the
module keeps the network itself, and its result for the same batch has a graph."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "term of a loss whose gradient cancels",
    "kind": "gradient-cancels",
    "line": ["cause", "cause"],
    "framework": "lightning",
    "what": "self.teacher is self.student: the divergence of one distribution from itself gives no gradient.",
    "symptom": "no error; the results are those of a training without a teacher",
    "set": "ledger",
    "written": "2026-11-28",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Grains(L.LightningModule):
    def __init__(self, temperature=2.0):
        super().__init__()
        self.student = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 20, 5))
        self.teacher = self.student
        self.temperature = temperature

    def training_step(self, batch, index):
        spectra, kinds = batch
        logits = self.student(spectra)
        soft = F.softmax(self.teacher(spectra) / self.temperature, dim=-1)  # <-- cause
        log_soft = F.log_softmax(logits / self.temperature, dim=-1)
        distilled = F.kl_div(log_soft, soft, reduction="batchmean") * self.temperature**2
        loss = F.cross_entropy(logits, kinds) + 0.5 * distilled
        self.last = loss.detach()
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}  loss {self.last.item():.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


L.seed_everything(2, verbose=False)
kinds = torch.randint(0, 5, (480,))
spectra = torch.randn(5, 1, 24)[kinds] + 0.8 * torch.randn(480, 1, 24)
trainer = L.Trainer(max_epochs=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False)
trainer.fit(Grains(), DataLoader(TensorDataset(spectra, kinds), batch_size=48, shuffle=True))
