"""Two crops of each leaf are drawn together by the product of normalised projections, in a Lightning module. The author took
the moving average of the encoder out again and computes the target with the encoder that learns."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "target of a self-supervised loss is not detached",
    "kind": "embeddings-collapse",
    "line": ["cause", "cause"],
    "framework": "lightning",
    "what": "Both factors of the similarity are trained and no other pair is pushed apart; all leaves get one projection.",
    "symptom": "no error; the loss falls to nearly zero",
    "set": "ledger",
    "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


def regression_loss(p, z):
    p, z = F.normalize(p, dim=-1), F.normalize(z, dim=-1)
    return 2 - 2 * (p * z).sum(dim=-1)  # <-- cause


class LeafTwins(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))

    def crop(self, x):
        return x * (torch.rand_like(x) > 0.25) + 0.05 * torch.randn_like(x)

    def training_step(self, batch, index):
        one, other = self.body(self.crop(batch[0])), self.body(self.crop(batch[0]))
        loss = (regression_loss(self.head(one), other) + regression_loss(self.head(other), one)).mean()
        self.last = loss.detach()
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}  loss {self.last.item():.4f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=5e-3)


L.seed_everything(5, verbose=False)
leaves = torch.randn(640, 6) @ torch.randn(6, 36)
trainer = L.Trainer(max_epochs=14, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False)
trainer.fit(LeafTwins(), DataLoader(TensorDataset(leaves), batch_size=64, shuffle=True, drop_last=True))
