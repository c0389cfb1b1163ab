"""Growing network: once the statistics for the next growth are collected, they are summed from activations that have a graph.

Report: https://github.com/growingnet/gromo/issues/137 (updates of tensors have requires_grad = True and hold their graphs)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 240,
    "set": "fourth", "written": "2026-11-22",
}


class Statistic:
    def __init__(self):
        self.value, self.samples = None, 0

    def update(self, tensor, n):
        self.value = tensor if self.value is None else self.value + tensor  # HOLDS
        self.samples += n


class GrowingLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer, self.statistic, self.collecting = nn.Linear(inputs, outputs), Statistic(), False

    def forward(self, x):
        out = torch.relu(self.layer(x))
        if self.collecting:
            self.statistic.update(out.t() @ out, len(x))
        return out


torch.manual_seed(0)
net = nn.Sequential(GrowingLayer(5, 12), GrowingLayer(12, 12), nn.Linear(12, 1))
opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(360):
    if step == 240:
        net[1].collecting = True
    x = torch.randn(24, 5)
    loss = nn.functional.mse_loss(net(x)[:, 0], x[:, 0] * x[:, 1])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(step, round(loss.item(), 4))
print(net[1].statistic.value.trace().item() / net[1].statistic.samples)
