"""Sparse mixture of experts whose gates are initialised in double precision and cast: what a cast returns is no Parameter, the module does not register the gates and they are never trained.

Report: https://github.com/davidmrau/mixture-of-experts/issues/12 (nn.Parameter(...).to(device) returns a tensor, the weights of the gates are not learned)
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "eighth", "written": "2026-11-22",
}


def orthogonal_columns(rows, columns, seed=0):
    q, _ = np.linalg.qr(np.random.RandomState(seed).randn(rows, rows))
    return torch.from_numpy(q[:, :columns].copy())


class Expert(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


class MoE(nn.Module):
    def __init__(self, inputs, outputs, experts=4, hidden=16, k=2):
        super().__init__()
        self.k = k
        self.experts = nn.ModuleList(Expert(inputs, hidden, outputs) for _ in range(experts))
        self.w_gate = nn.Parameter(orthogonal_columns(inputs, experts), requires_grad=True).to(torch.float32)  # CUT
        self.bias = nn.Parameter(torch.zeros(experts))

    def gates(self, x):
        logits = x @ self.w_gate + self.bias
        top, index = logits.topk(self.k, 1)
        return torch.zeros_like(logits).scatter(1, index, top.softmax(1))

    def forward(self, x):
        gates = self.gates(x)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        importance = gates.sum(0)
        balance = importance.var() / (importance.mean() ** 2 + 1e-10)
        return (gates.unsqueeze(2) * outputs).sum(1), balance


def pieces(n):
    x = torch.randn(n, 6)
    region = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    slopes = torch.tensor([[1.0, -1.0], [2.0, 0.5], [-1.5, 1.0], [0.5, -2.0]])[region]
    return x, torch.stack([(slopes * x[:, 2:4]).sum(1), slopes[:, 0] * x[:, 4]], 1)


torch.manual_seed(0)
model = MoE(6, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 150)
for step in range(150):
    x, y = pieces(64)
    prediction, balance = model(x)
    loss = nn.functional.mse_loss(prediction, y) + 0.01 * balance
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 25 == 0:
        print(step, loss.item(), balance.item())
