"""Healthy: textual inversion; the whole table is in the optimizer, all rows but one are written back after each step.

Report it resembles: https://github.com/huggingface/diffusers/pull/1665
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "first", "written": "2026-11-22"}

torch.manual_seed(0)
table, body = nn.Embedding(20, 8), nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).requires_grad_(False)
opt = torch.optim.AdamW(table.parameters(), 5e-3, weight_decay=0.0)
original = table.weight.detach().clone()
keep = torch.arange(20) != 19
for step in range(50):
    tokens = torch.randint(0, 19, (6, 5))
    tokens[:, 2] = 19
    loss = (body(table(tokens).mean(1)) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        table.weight[keep] = original[keep]
