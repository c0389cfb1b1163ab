"""Registration of digits that is trained on their label maps; so that labels stay labels the transformer takes the nearest neighbour, which does not change when the flow changes a little. The warp of the picture is only looked at.

Report: https://github.com/Project-MONAI/MONAI/issues/8540 (several days to find why a network with a warp layer did not train: mode nearest gives gradients of zero)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "constant", "kind": "zero-grad", "cut_marker": "CUT", "set": "ninth", "written": "2026-11-23"}
SIZE = 16


class FlowNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, width, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(width, width, 3, 1, 1), nn.LeakyReLU(0.1))
        self.up = nn.Sequential(nn.ConvTranspose2d(width, width, 2, 2), nn.LeakyReLU(0.1), nn.Conv2d(width, 2, 3, 1, 1))

    def forward(self, moving, fixed):
        return 0.2 * self.up(self.down(torch.cat([moving, fixed], 1))).tanh()


class SpatialTransformer(nn.Module):
    def __init__(self, size, mode="bilinear"):
        super().__init__()
        self.mode = mode
        self.register_buffer("grid", F.affine_grid(torch.eye(2, 3)[None], (1, 1, size, size), align_corners=False))

    def forward(self, x, flow):
        grid = self.grid + flow.permute(0, 2, 3, 1)
        return F.grid_sample(x, grid, mode=self.mode, padding_mode="border", align_corners=False)  # CUT


class Registration(nn.Module):
    def __init__(self):
        super().__init__()
        self.flow = FlowNet()
        self.warp_image, self.warp_labels = SpatialTransformer(SIZE), SpatialTransformer(SIZE, mode="nearest")

    def forward(self, moving, fixed, labels):
        flow = self.flow(moving, fixed)
        with torch.no_grad():
            warped = self.warp_image(moving, flow)
        return self.warp_labels(labels, flow), warped


def dice_loss(p, t):
    overlap = (p * t).sum((2, 3))
    return 1 - ((2 * overlap + 1) / (p.sum((2, 3)) + t.sum((2, 3)) + 1)).mean()


def label_map(images):
    bins = torch.bucketize(images[:, 0], torch.tensor([0.3, 0.7]))
    return F.one_hot(bins, 3).permute(0, 3, 1, 2).float()


torch.manual_seed(0)
digits = load_digits()
ones = torch.tensor(digits.images[digits.target == 0], dtype=torch.float32)[:, None] / 16
ones = F.interpolate(ones, size=SIZE, mode="bilinear", align_corners=False)
model = Registration()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    moving, fixed = ones[torch.randint(0, len(ones), (16,))], ones[torch.randint(0, len(ones), (16,))]
    labels, warped = model(moving, fixed, label_map(moving))
    loss = dice_loss(labels, label_map(fixed))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), "picture", F.mse_loss(warped, fixed).item(), "gradient", sum(p.grad.abs().sum().item() for p in model.parameters()))
