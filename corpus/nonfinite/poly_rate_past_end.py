"""Segmentation with the polynomial rate: the run was given more iterations than the schedule knows, and a negative number has no power of 0.9.

Report: https://github.com/VainF/DeepLabV3Plus-Pytorch/issues/59 (continued past max_iters; Python's power gives a complex number there, NumPy's NaN)
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "class": "schedule", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 201,
    "set": "fifth", "written": "2026-11-22",
}


class PolyLR(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer, max_iters, power=0.9):
        super().__init__(optimizer, lambda it: float(np.power(1 - np.float64(it) / max_iters, power)))  # CULPRIT


class SegNet(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.classifier = nn.Sequential(nn.Conv2d(width, width, 3, padding=2, dilation=2), nn.ReLU(), nn.Conv2d(width, classes, 1))

    def forward(self, x):
        return self.classifier(self.backbone(x))


torch.manual_seed(0)
net = SegNet()
optimizer = torch.optim.SGD(
    [{"params": net.backbone.parameters(), "lr": 0.01}, {"params": net.classifier.parameters(), "lr": 0.1}],
    lr=0.1, momentum=0.9, weight_decay=1e-4,
)
max_iters, total_itrs = 200, 240
scheduler = PolyLR(optimizer, max_iters)
for it in range(total_itrs):
    images = torch.rand(4, 1, 12, 12)
    masks = (images[:, 0] * 3).long().clamp(max=2)
    loss = nn.functional.cross_entropy(net(images), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # CULPRIT
    scheduler.step()
    if it % 20 == 0:
        print(it, round(loss.item(), 4), optimizer.param_groups[0]["lr"])
