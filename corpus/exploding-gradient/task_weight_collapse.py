"""Uncertainty weighting: the learned log variance of an easy task falls without bound and its precision multiplies the gradients.

Report: https://github.com/yaringal/multi-task-learning-example/issues/14
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-blow-up", "kind": "exploding-gradient", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 1), nn.Linear(16, 1)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x, ya, yb):
        h = torch.tanh(self.trunk(x))
        errors = torch.stack([(self.a(h) - ya).square().mean(), (self.b(h) - yb).square().mean()])
        return (errors * torch.exp(-self.log_var) + self.log_var).sum()  # CULPRIT


torch.manual_seed(0)
model = MultiTask()
with torch.no_grad():
    model.b.weight.zero_()
    model.b.bias.zero_()
opt = torch.optim.SGD([{"params": [model.log_var], "lr": 0.5}, {"params": [*model.trunk.parameters(), *model.a.parameters()], "lr": 1e-3}, {"params": model.b.parameters(), "lr": 1e-12}])
for step in range(80):
    x = torch.randn(32, 6)
    yb = torch.zeros(32, 1) if step < 70 else torch.ones(32, 1)  # the label of the easy task appears at last
    loss = model(x, x[:, :1], yb)
    opt.zero_grad()
    loss.backward()
    if step == 70:
        print("reproduced", model.b.weight.grad.norm().item(), loss.item())
        break
    opt.step()
