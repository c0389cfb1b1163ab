"""A small autoencoder whose rate is to be lowered at step 150 of 400. Gamma was meant to be 0.1; the configuration
holds it as an integer."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "gamma of zero",
    "kind": "learning-rate-zero",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
CONFIG = {"lr": 1e-2, "milestones": [150], "gamma": int(0.1)}


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 4), nn.Linear(4, 12)

    def forward(self, x):
        return self.decode(torch.tanh(self.encode(x)))


def configure(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG["lr"])
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, CONFIG["milestones"], gamma=CONFIG["gamma"])  # <-- cause


mixing = torch.randn(4, 12)
model = Autoencoder()
optimizer, schedule = configure(model)
for step in range(400):
    x = torch.randn(32, 4) @ mixing
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
