"""Forecast of bike stations with Lightning. Thirty stations were learned before and are kept: their rows of the table get
a gradient of zero before each step. SGD has momentum and weight decay for the whole table."""
import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "rows frozen by zero gradients move",
    "kind": "frozen-parameter-moves",
    "line": ["zeroed", "cause"],
    "what": "The rows of known stations get a gradient of zero, but SGD's weight decay shrinks them in each step.",
    "symptom": "no error; forecasts of the known stations get worse",
    "framework": "lightning",
    "set": "ledger",
    "written": "2026-11-28",
}

torch.manual_seed(4)
torch.set_num_threads(1)
KNOWN, STATIONS = 30, 48


class Stations(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(STATIONS, 12)
        self.hours = nn.Linear(6, 12)
        self.out = nn.Linear(12, 1)

    def training_step(self, batch, number):
        station, hour, bikes = batch
        return (self.out(torch.tanh(self.table(station) + self.hours(hour))).squeeze(1) - bikes).square().mean()

    def on_before_optimizer_step(self, optimizer):
        self.table.weight.grad[:KNOWN] = 0  # <-- cause

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)


station, hour = torch.randint(0, STATIONS, (2400,)), torch.randn(2400, 6)
bikes = torch.randn(STATIONS)[station] + hour[:, 0]
model = Stations()
before = model.table.weight[:KNOWN].detach().clone()
trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(model, DataLoader(TensorDataset(station, hour, bikes), batch_size=32, shuffle=True))
print(f"known rows: norm {before.norm().item():.2f} before, {model.table.weight[:KNOWN].norm().item():.2f} now")
