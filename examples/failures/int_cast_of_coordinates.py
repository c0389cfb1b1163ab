"""Spatial crop: predicted box coordinates are cast to long to slice the feature map."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class CropNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.localizer, self.head = nn.Conv2d(1, 3, 3, padding=1), nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, image):
        f = torch.relu(self.features(image))
        centre = (torch.sigmoid(self.localizer(f.mean((2, 3)))) * 8).long()  # CUT
        rows = torch.arange(len(f))
        picked = f[rows, :, centre[:, 0].clamp(0, 7), centre[:, 1].clamp(0, 7)]
        return self.head(picked)


if __name__ == "__main__":
    torch.manual_seed(0)
    net = CropNet()
    opt = torch.optim.Adam(net.parameters())
    for _ in range(4):
        loss = nn.functional.cross_entropy(net(torch.rand(6, 1, 8, 8)), torch.randint(0, 2, (6,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print([n for n, p in net.named_parameters() if p.grad is None])
