"""`@torch.no_grad()` was copied from the inference class onto the forward of the model that is being trained."""

import torch
from torch import nn

EXPECT = {"kind": "grad-mode-disabled", "line": ("cut", "CUT")}


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    @torch.no_grad()  # CUT
    def forward(self, image):
        return self.dec(torch.relu(self.enc(image))).sigmoid()  # CUT


class Trainer:
    def __init__(self, model):
        self.model, self.opt = model, torch.optim.Adam(model.parameters())

    def step(self, image, depth):
        pred = self.model(image)  # CUT
        loss = (pred - depth).abs().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


torch.manual_seed(0)
Trainer(Depth()).step(torch.rand(2, 3, 8, 8), torch.rand(2, 1, 8, 8))
