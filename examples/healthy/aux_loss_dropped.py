"""Healthy: an auxiliary loss that is left out from some step on, and logged all along."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": None}
torch.manual_seed(0)

body, head, aux = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
opt = torch.optim.AdamW([*body.parameters(), *head.parameters(), *aux.parameters()])
log = []
for step in range(60):
    h = torch.relu(body(torch.randn(8, 4)))
    extra = aux(h).square().mean()
    log.append(extra.item())
    loss = F.cross_entropy(head(h), torch.randint(0, 2, (8,)))
    if step < 30:
        loss = loss + 0.1 * extra
    opt.zero_grad()
    loss.backward()
    opt.step()
