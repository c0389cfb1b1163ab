"""Lightning with manual optimization: training_step makes the optimizer itself, with momentum that is never used twice."""
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from sklearn.datasets import make_moons
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "optimizer-made-anew", "framework": "lightning", "kind": "optimizer-made-anew",
    "line": ("optimizer", "ANEW"), "set": "ledger", "written": "2026-11-27",
}

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Shadows(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 2))

    def training_step(self, batch, _):
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)  # ANEW
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        sgd.zero_grad()
        self.manual_backward(loss)
        sgd.step()

    def configure_optimizers(self):
        return None


torch.manual_seed(0)
x, y = make_moons(240, noise=0.1, random_state=0)
data = TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
trainer = L.Trainer(max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Shadows(), DataLoader(data, batch_size=24, shuffle=True))
