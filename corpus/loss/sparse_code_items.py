"""A sparse autoencoder. Whatever the weight of the penalty, the codes stay dense: the penalty of each layer is read with
item() and added up in Python, so it is in the printed loss and in no gradient."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "loss term without a graph",
    "kind": "loss-term-without-graph",
    "line": ["cut", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleList([nn.Linear(20, 32), nn.Linear(32, 32)])
        self.decoder = nn.Linear(32, 20)

    def forward(self, x):
        activity = 0.0
        for layer in self.encoder:
            x = layer(x).relu()
            activity += x.abs().mean().item()  # <-- cause
        return self.decoder(x), activity


def objective(model, x, weight=0.3):
    output, activity = model(x)
    return nn.functional.mse_loss(output, x) + weight * activity


model = Sparse()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
mixing = torch.randn(6, 20)
for step in range(150):
    x = torch.randn(32, 6) @ mixing
    loss = objective(model, x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
