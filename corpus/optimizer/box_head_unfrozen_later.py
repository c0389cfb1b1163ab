"""Detector whose box head is unfrozen at an iteration: it gets gradients from there on, the optimizer was given what was trainable at the start.

Report: https://github.com/facebookresearch/detectron2/issues/2486 (unfreezing at iteration 500 does not take effect)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "step": 150,
    "set": "fourth", "written": "2026-11-22",
}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.box_head, self.boxes = nn.Sequential(nn.Linear(24, 24), nn.ReLU()), nn.Linear(24, 4)

    def forward(self, x):
        return self.boxes(self.box_head(self.backbone(x)))

    def unfreeze_box_head(self):
        for p in self.box_head.parameters():
            p.requires_grad = True


def build_optimizer(model):
    params = [{"params": [p], "weight_decay": 1e-4 if p.dim() > 1 else 0.0} for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(params, lr=1e-2, momentum=0.9)  # OPTIMIZER


torch.manual_seed(0)
model = Detector()
model.box_head.requires_grad_(False)
opt = build_optimizer(model)
for iteration in range(260):
    if iteration == 150:
        model.unfreeze_box_head()
    x = torch.randn(16, 8)
    loss = nn.functional.smooth_l1_loss(model(x), x[:, :4].abs())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if iteration % 40 == 0:
        print(iteration, round(loss.item(), 4))
