"""Survival model with a hazard that is exponential below zero and bounded by one above: for a large risk exp is Inf before it is clamped.

Report: https://github.com/pytorch/pytorch/issues/10729 (gradient of clamp is nan for inf inputs)
"""
import torch
from torch import nn

EXPECT = {
    "class": "overflow", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "fourth", "written": "2026-11-22",
}


class Hazard(nn.Module):
    def __init__(self):
        super().__init__()
        self.risk = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        risk = self.risk(x[:, :5])[:, 0] + x[:, 5]
        hazard = torch.exp(risk)  # CULPRIT
        return hazard.clamp(max=1.0)


torch.manual_seed(0)
model = Hazard()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(40):
    x = torch.randn(32, 6)
    if step == 17:
        x[4, 5] = 120.0  # days in place of years
    died = (torch.rand(32) < 0.5 * torch.sigmoid(x[:, 0])).float()
    hazard = model(x)
    loss = (hazard - died).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), model.risk[0].weight.isnan().any().item())
