"""AverageMeter is fed tensors with a graph and sums them over the epoch.

Report: https://github.com/visionml/pytracking/pull/313
"""
import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "first", "written": "2026-11-22",
}


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0, 0

    def update(self, value, n=1):
        self.sum = self.sum + value * n  # HOLDS
        self.count += n

    @property
    def average(self):
        return self.sum / max(self.count, 1)


torch.manual_seed(0)
tracker = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(tracker.parameters(), 1e-3)
stats = {"loss": AverageMeter(), "iou": AverageMeter()}
for step in range(60):
    x = torch.rand(8, 10)
    box = tracker(x)
    loss = nn.functional.smooth_l1_loss(box, x[:, :4])
    opt.zero_grad()
    loss.backward()
    opt.step()
    stats["loss"].update(loss.item(), 8)
    if step >= 20:  # the second metric is switched on after the warm-up
        stats["iou"].update(torch.minimum(box, x[:, :4]).sum(), 8)
print("reproduced", stats["iou"].average.requires_grad)
