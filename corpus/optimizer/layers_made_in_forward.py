"""The projection of a shortcut is created inside forward where the widths differ: new random weights in every step, known to nobody.

Report: https://github.com/pytorch/pytorch/issues/1291
"""
import torch
from torch import nn

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "second", "written": "2026-11-22",
}


class Block(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.fc = nn.Linear(width_in, width_out)

    def forward(self, x):
        y = self.fc(x)
        if x.shape[-1] != y.shape[-1]:
            x = nn.Linear(x.shape[-1], y.shape[-1])(x)  # CUT
        return (x + y).relu()


torch.manual_seed(0)
net = nn.Sequential(Block(6, 6), Block(6, 12), nn.Linear(12, 3))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(30):
    loss = nn.functional.cross_entropy(net(torch.randn(9, 6)), torch.arange(9) % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", len(list(net.parameters())))
