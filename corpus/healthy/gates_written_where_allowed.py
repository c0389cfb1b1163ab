"""Gated network that writes in place to slices, to chunks of a value without a graph, and to weights under no_grad; an
optional write that autograd refuses is handled. Healthy.
"""
import torch
from torch import nn

EXPECT = {"class": "refused", "kind": "none", "set": "ledger", "written": "2026-11-27"}
torch.manual_seed(0)
layer, head = nn.Linear(4, 16), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], 1e-2)
for step in range(150):
    x = torch.randn(8, 4)
    left, right = x.chunk(2, -1)
    left += 0.1
    hidden = layer(x)
    hidden[:, :8] *= 0.5
    value, gate = hidden.chunk(2, -1)
    if step % 20 == 0:
        try:
            gate.sigmoid_()
        except RuntimeError:
            gate = gate.clone().sigmoid_()
    else:
        gate = gate.sigmoid()
    loss = (head(value * gate) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        head.weight[0].clamp_(-1, 1)
