"""An autoencoder of digits whose gradients are clipped to a norm of 1e-6, a bound that was meant for values: SGD then changes nothing."""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "update-too-small", "framework": "plain", "kind": "update-too-small", "line": ("optimizer", "MADE"),
    "set": "ledger", "written": "2026-11-27",
}


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(0)
data = torch.tensor(load_digits().data, dtype=torch.float32) / 16
model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # MADE
for epoch in range(3):
    for batch in torch.randperm(len(data)).split(32):
        loss = (model(data[batch]) - data[batch]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-6)
        optimizer.step()
    print(epoch, loss.item())
