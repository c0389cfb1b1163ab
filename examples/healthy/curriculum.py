"""Healthy: an easy task first, then a hard one with a head of its own."""

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"kind": None}
torch.manual_seed(0)

body, easy, hard = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 5)
opt = torch.optim.Adam([*body.parameters(), *easy.parameters(), *hard.parameters()])
for step in range(60):
    h = torch.relu(body(torch.randn(8, 4)))
    loss = (
        F.cross_entropy(easy(h), torch.randint(0, 2, (8,)))
        if step < 30
        else F.cross_entropy(hard(h), torch.randint(0, 5, (8,)))
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        with torch.no_grad():
            for _ in range(10):
                easy(torch.relu(body(torch.randn(8, 4))))
