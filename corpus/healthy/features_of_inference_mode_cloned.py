"""Features that a frozen encoder made in inference mode are cloned, normalised in place and learned from. Healthy."""
import torch
from torch import nn

EXPECT = {"class": "refused", "kind": "none", "set": "ledger", "written": "2026-11-27"}
torch.manual_seed(0)
encoder, head = nn.Linear(6, 8), nn.Linear(8, 1)
optimizer = torch.optim.Adam(head.parameters(), 1e-2)
x = torch.randn(64, 6)
with torch.inference_mode():
    features = encoder(x)
features = features.clone()
for row in features:
    row -= row.mean()
for step in range(100):
    loss = (head(features) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
