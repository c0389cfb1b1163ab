"""Detector of one kind of object on a small ViT: the box is learned, the class head is scored by a softmax over its single class, which is one whatever comes in; its loss reads zero and it never moves.

Report: https://github.com/ultralytics/yolov3/issues/191 (training on one class: the classification loss is always zero, cross entropy makes a one of any column)
"""
import torch
from torch import nn
from torch.nn import functional as F
from transformers import ViTConfig, ViTModel

EXPECT = {
    "class": "constant", "framework": "transformers", "kind": "zero-grad", "cut_marker": "CUT",
    "set": "ninth", "written": "2026-11-23",
}


class Detector(nn.Module):
    def __init__(self, names, dim=24):
        super().__init__()
        config = ViTConfig(image_size=16, patch_size=4, num_channels=1, hidden_size=dim, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
        self.backbone = ViTModel(config, add_pooling_layer=False)
        self.class_head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, len(names)))
        self.box_head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, images):
        token = self.backbone(pixel_values=images).last_hidden_state[:, 0]
        return self.class_head(token), self.box_head(token).sigmoid()


class DetectionLoss(nn.Module):
    def __init__(self, class_weight=1.0, box_weight=5.0):
        super().__init__()
        self.class_weight, self.box_weight = class_weight, box_weight

    def forward(self, logits, boxes, target_class, target_box):
        class_loss = F.cross_entropy(logits, target_class)  # CUT
        box_loss = F.smooth_l1_loss(boxes, target_box, beta=0.1)
        return self.class_weight * class_loss + self.box_weight * box_loss, class_loss, box_loss


def scenes(n):
    images, boxes = 0.1 * torch.randn(n, 1, 16, 16), torch.zeros(n, 4)
    for i in range(n):
        w, h = torch.randint(4, 9, (2,)).tolist()
        x, y = torch.randint(0, 17 - w, (1,)).item(), torch.randint(0, 17 - h, (1,)).item()
        images[i, 0, y : y + h, x : x + w] += 1
        boxes[i] = torch.tensor([x + w / 2, y + h / 2, w, h]) / 16
    return images, torch.zeros(n, dtype=torch.long), boxes


torch.manual_seed(0)
names = ["helmet"]
model, criterion = Detector(names), DetectionLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
before = [p.detach().clone() for p in model.class_head.parameters()]
for step in range(100):
    images, target_class, target_box = scenes(16)
    logits, boxes = model(images)
    loss, class_loss, box_loss = criterion(logits, boxes, target_class, target_box)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, f"class {class_loss.item():.4f} box {box_loss.item():.4f}")
print("class head moved by", max((p - q).abs().max().item() for p, q in zip(model.class_head.parameters(), before)))
