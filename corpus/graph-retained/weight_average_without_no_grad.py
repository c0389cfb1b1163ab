"""Averaged weights are updated outside no_grad: the average of step n holds the graphs of all n updates.

Report: https://github.com/fadel/pytorch_ema/issues/1 (where to put no_grad in the average of the weights)
"""
import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 2))
opt = torch.optim.AdamW(net.parameters(), 1e-3)
average = {n: p.detach().clone() for n, p in net.named_parameters()}
for step in range(60):
    x = torch.randn(16, 6)
    loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step >= 15:  # averaging starts late
        for name, p in net.named_parameters():
            average[name] = 0.99 * average[name] + 0.01 * p  # HOLDS
print("reproduced", average["0.weight"].grad_fn is not None)
