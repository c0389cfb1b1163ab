"""Healthy: several measurements per molecule, most of them missing and NaN in the table; the loss selects those that are there, and a batch without any for a task leaves that task out.

Report it resembles: https://github.com/huggingface/transformers/issues/11461 (a loss of NaN through labels that are not there)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "seventh", "written": "2026-11-22"}


class MultiTarget(nn.Module):
    def __init__(self, inputs, targets):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.heads = nn.ModuleList([nn.Linear(32, 1) for _ in range(targets)])

    def forward(self, x):
        h = self.body(x)
        return torch.cat([head(h) for head in self.heads], 1)


def masked_loss(predicted, table):
    present = table.isfinite()
    losses = []
    for task in range(table.shape[1]):
        rows = present[:, task]
        if rows.any():
            losses.append((predicted[rows, task] - table[rows, task]).square().mean())
    return torch.stack(losses).mean()


def molecules(n, step):
    x = torch.randn(n, 8)
    y = torch.stack([x[:, 0] + x[:, 1], x[:, 2] * x[:, 3], x[:, 4].tanh()], 1)
    y[torch.rand(n, 3) < 0.6] = float("nan")
    if step % 40 == 25:
        y[:, 2] = float("nan")
    y[0, 0] = x[0, 0] + x[0, 1]
    return x, y


torch.manual_seed(0)
model = MultiTarget(8, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(250):
    x, table = molecules(16, step)
    loss = masked_loss(model(x), table)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item(), int(table.isnan().sum()))
