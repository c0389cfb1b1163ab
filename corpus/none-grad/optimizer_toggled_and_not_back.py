"""GAN in Lightning with manual optimisation: the generator's optimizer is toggled, which freezes the critic, and never
untoggled.
"""
import torch
import lightning as L
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "frozen", "kind": "none-grad", "cut_marker": "CUT", "framework": "lightning", "set": "ledger", "written": "2026-11-27",
}
class Gan(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g = nn.Linear(4, 2); self.d = nn.Linear(2, 1)
    def configure_optimizers(self):
        return torch.optim.Adam(self.g.parameters(), 1e-3), torch.optim.Adam(self.d.parameters(), 1e-3)
    def training_step(self, batch, i):
        og, od = self.optimizers()
        x, = batch
        z = torch.randn(len(x), 4)
        self.toggle_optimizer(og)  # CUT
        loss = -self.d(self.g(z)).mean()
        og.zero_grad(); self.manual_backward(loss); og.step()
        # untoggle forgotten
        loss = self.d(self.g(z).detach()).mean() - self.d(x).mean()
        od.zero_grad(); self.manual_backward(loss); od.step()
data = DataLoader(TensorDataset(torch.randn(256, 2)), batch_size=8)
L.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu").fit(Gan(), data)
