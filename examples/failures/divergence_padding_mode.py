"""Port of a conv net: one convolution has padding_mode="reflect", the port has zeros."""

import torch
from torch import nn

EXPECT = {"kind": "first-divergence", "module": "net.2", "ask": "divergence"}


class Enhance(nn.Module):
    def __init__(self, mode="zeros"):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, padding_mode=mode), nn.ReLU()
        )
        self.out = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        return self.out(self.net(x))


torch.manual_seed(0)
a, b = Enhance("reflect"), Enhance()
b.load_state_dict(a.state_dict())
image = torch.rand(1, 1, 10, 10)
print((a(image) - b(image)).abs().max().item())
