"""Power of turbines with Lightning and BatchNorm. A sensor writes 1e38 now and then, from step 170 on: the variance of
the batch is infinite. training_step returns None for losses that are not finite, and Lightning skips those."""
import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "NaN in buffers after a skipped batch",
    "kind": "nonfinite-buffer",
    "line": ["cause", "cause"],
    "what": "A reading of 1e38 overflows in the running variance; the batch is skipped, but the statistics keep it.",
    "symptom": "no error; the outputs in eval mode are constant or NaN",
    "framework": "lightning",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(8)
torch.set_num_threads(1)


class Power(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))

    def training_step(self, batch, number):
        readings, power = batch
        loss = (self.net(readings).squeeze(1) - power).square().mean()  # <-- cause
        if not torch.isfinite(loss):
            return None
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


readings = torch.randn(32 * 260, 8)
power = readings[:, 0] * 2 - readings[:, 1].abs()
for step in range(170, 260, 30):
    readings[32 * step + 5, 3] = 1e38
model = Power()
trainer = L.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(TensorDataset(readings, power), batch_size=32))
model.eval()
with torch.no_grad():
    print("in eval mode:", model.net(torch.randn(4, 8)).squeeze(1).tolist())
