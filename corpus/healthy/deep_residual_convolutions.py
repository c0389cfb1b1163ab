"""Ten residual blocks of convolutions with batch normalisation, as one region."""

import os

import torch
from torch import nn

EXPECT = {"kind": None, "set": "compiled", "written": "2026-11-23"}

BACKEND = os.environ.get("BACKEND", "aot_eager")


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        made = torch.relu(self.norm1(self.first(x)))
        return torch.relu(x + self.norm2(self.second(made)))


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), *(Block() for _ in range(10)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
)
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for _step in range(36):
    loss = nn.functional.cross_entropy(run(torch.randn(8, 3, 8, 8)), torch.randint(4, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
