"""Detector with a CIoU loss: targets are padded with empty boxes, their aspect ratio is 0 / 0 and the mask multiplies it away too late.

Report: https://github.com/tensorflow/addons/pull/914 (padded boxes under a mask; Megvii-BaseDetection/YOLOX issue 1565 is the same loss in PyTorch)
"""
import math

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN",
    "set": "second", "written": "2026-11-22",
}


def ciou(pred, target):
    low = torch.maximum(pred[..., :2], target[..., :2])
    high = torch.minimum(pred[..., :2] + pred[..., 2:], target[..., :2] + target[..., 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    iou = inter / (pred[..., 2:].prod(-1) + target[..., 2:].prod(-1) - inter + 1e-7)
    ratio = target[..., 2] / target[..., 3]  # BORN
    v = 4 / math.pi**2 * (torch.atan(ratio) - torch.atan(pred[..., 2] / pred[..., 3])).square()
    alpha = (v / (1 - iou + v + 1e-7)).detach()
    return 1 - iou + alpha * v


def collate(samples):
    boxes = pad_sequence([b for _, b in samples], batch_first=True)
    count = torch.tensor([len(b) for _, b in samples])
    mask = torch.arange(boxes.shape[1])[None] < count[:, None]
    return torch.stack([x for x, _ in samples]), boxes, mask.float()


g = torch.Generator().manual_seed(1)
data = []
for i in range(160):
    boxes = torch.rand(1 if i == 93 else 2, 4, generator=g) * 0.4 + 0.2
    data.append((torch.randn(8, generator=g), boxes))

torch.manual_seed(0)
head = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
opt = torch.optim.SGD(head.parameters(), 1e-2, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
for x, boxes, mask in DataLoader(data, batch_size=4, collate_fn=collate):
    pred = head(x).view(-1, 2, 4)[:, : boxes.shape[1]].sigmoid()
    loss = (ciou(pred, boxes) * mask).sum() / mask.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
print("reproduced", head[0].weight.isnan().any().item())
