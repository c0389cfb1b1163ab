"""A backbone is meant to be frozen: the assignment gives the module an attribute, and every weight goes on training."""

import torch
from torch import nn

EXPECT = {"kind": "freeze-without-effect", "line": ("cause", "FREEZES"), "module": "backbone"}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


torch.manual_seed(0)
model = Classifier()
model.backbone.requires_grad = False  # FREEZES
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x = torch.randn(32, 16)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
