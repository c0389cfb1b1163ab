"""A restart of the schedule multiplies the rate by mistake; all units of the last ReLU end below zero and stay there.

Report: https://github.com/jvargasmu/population_estimation/issues/68 (a ReLU at the output predicts zeros and no gradient comes)
"""
import torch
from torch import nn

EXPECT = {
    "class": "dies-late", "kind": "zero-grad", "cut_marker": "CUT", "module": "act",
    "set": "first", "written": "2026-11-22",
}


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.act = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)), nn.ReLU()

    def forward(self, x):
        return self.act(self.body(x))  # CUT


torch.manual_seed(0)
model = Counts()
opt = torch.optim.SGD(model.parameters(), 1e-2)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 8000.0 if 60 <= s < 64 else 1.0)
for step in range(150):
    x = torch.randn(32, 6)
    loss = (model(x) - (1 + x[:, :1]).clamp(min=0)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
print("reproduced", sum(p.grad.abs().sum().item() for p in model.parameters()))
