"""The backbone is unfrozen after the warm-up, but the optimizer was made with the trainable ones only."""

import torch
from torch import nn

EXPECT = {"kind": "parameter-not-in-optimizer", "line": ("optimizer", "OPT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Sequential(nn.Linear(6, 12), nn.ReLU()), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


torch.manual_seed(0)
net = Net()
for p in net.backbone.parameters():
    p.requires_grad = False
opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, net.parameters()), 1e-3)  # OPT
for epoch in range(6):
    if epoch == 3:
        for p in net.backbone.parameters():
            p.requires_grad = True
    for _ in range(10):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
