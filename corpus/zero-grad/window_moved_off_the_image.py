"""Spatial transformer before a small classifier: with the rate of the second stage the predicted window jumps off the image, the sampler returns black only, and nothing tells the localisation net the way back.

Report: https://github.com/qassemoquab/stnbhwd/issues/22 (the transformation makes the images small, then completely blank)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "dies-late", "kind": "zero-grad", "cut_marker": "CUT", "step": 81,
    "set": "eighth", "written": "2026-11-22",
}


class Localise(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 5, stride=2), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.theta = nn.Sequential(nn.Linear(8 * 5 * 5, 24), nn.ReLU(), nn.Linear(24, 6))
        nn.init.zeros_(self.theta[-1].weight)
        self.theta[-1].bias.data.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, image):
        return self.theta(self.features(image)).view(-1, 2, 3)


class STNClassifier(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.localise = Localise()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(72, classes))

    def forward(self, image):
        grid = F.affine_grid(self.localise(image), (len(image), 1, 16, 16), align_corners=False)
        window = F.grid_sample(image, grid, align_corners=False)  # CUT
        return self.body(window)


def figures(n):
    image, label = 0.1 * torch.rand(n, 1, 26, 26), torch.randint(0, 3, (n,))
    for i in range(n):
        y, x = torch.randint(2, 14, (2,)).tolist()
        if label[i] == 0:
            image[i, 0, y : y + 9, x : x + 3] = 1
        elif label[i] == 1:
            image[i, 0, y : y + 3, x : x + 9] = 1
        else:
            image[i, 0, y : y + 6, x : x + 6] = 1
    return image, label


torch.manual_seed(0)
model = STNClassifier()
optimizer = torch.optim.SGD(
    [{"params": model.localise.parameters(), "lr": 1e-3}, {"params": model.body.parameters(), "lr": 5e-2}], momentum=0.9
)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda s: 1.0 if s < 80 else 300.0, lambda s: 1.0])
for step in range(200):
    image, label = figures(32)
    loss = F.cross_entropy(model(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 20 == 0:
        print(step, loss.item())
