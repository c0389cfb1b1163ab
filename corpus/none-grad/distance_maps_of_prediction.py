"""Segmentation that changes to a boundary loss after a warm-up: the distance map of the prediction comes from SciPy, so what is compared are two constants; the weight of the area term has run down to zero by then.

Report: https://github.com/JunMa11/SegLossOdyssey/issues/17 (pred_dt is made by from_numpy(distance_field(pred.detach()...)): how can a gradient come out of it)
"""
import numpy as np
import torch
from scipy.ndimage import distance_transform_edt
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "step": 60,
    "set": "ninth", "written": "2026-11-23",
}


class SegNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU())
        self.decode = nn.Sequential(nn.ConvTranspose2d(width, width, 2, 2), nn.ReLU())
        self.segment, self.count = nn.Conv2d(width, 1, 1), nn.Linear(width, 1)

    def forward(self, image):
        h = self.encode(image)
        return self.segment(self.decode(h)), self.count(h.mean((2, 3))).squeeze(1)


class BoundaryLoss(nn.Module):
    @staticmethod
    def distance_field(masks):
        field = np.zeros_like(masks, dtype=np.float32)
        for i, mask in enumerate(masks > 0.5):
            if mask.any():
                field[i] = distance_transform_edt(mask) + distance_transform_edt(~mask)
        return field

    def forward(self, probability, target):
        predicted = torch.from_numpy(self.distance_field(probability.detach().cpu().numpy()))  # CUT
        wanted = torch.from_numpy(self.distance_field(target.cpu().numpy()))
        return (predicted - wanted).square().mean()


def dice(probability, target):
    overlap = (probability * target).sum((1, 2, 3))
    return 1 - ((2 * overlap + 1) / (probability.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)).mean()


def cells(n, size=16):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    number = torch.randint(1, 4, (n,))
    mask = torch.zeros(n, size, size)
    for i in range(n):
        for _ in range(number[i]):
            cy, cx = torch.randint(2, size - 2, (2,))
            mask[i] = torch.maximum(mask[i], ((y - cy) ** 2 + (x - cx) ** 2 < 8).float())
    mask = mask[:, None]
    return mask + 0.4 * torch.randn_like(mask), mask, number.float()


torch.manual_seed(0)
net, boundary = SegNet(), BoundaryLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(110):
    image, mask, number = cells(16)
    logits, count = net(image)
    probability = logits.sigmoid()
    share = min(step / 60, 1.0)
    counting = 0.05 * F.mse_loss(count, number)
    loss = counting + share * 0.1 * boundary(probability, mask)
    if share < 1:
        loss = loss + (1 - share) * dice(probability, mask)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), "dice", dice((probability > 0.5).float(), mask).item(), "gradient", [name for name, p in net.named_parameters() if p.grad is None])
