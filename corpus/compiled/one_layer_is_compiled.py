"""Only the blocks are compiled; one of them divides by a norm that is zero."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "nonfinite-forward",
    "line": ("cause", "HERE"),
    "module": "blocks.1",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        h = self.fc(x).relu()
        return h / h.norm(dim=-1, keepdim=True)  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(6) for _ in range(3))
        self.out = nn.Linear(6, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


torch.manual_seed(9)
net = Net()
for block in net.blocks:
    block.compile(backend=BACKEND)
with torch.no_grad():
    for block in net.blocks:
        block.fc.bias.fill_(0.5)
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
for step in range(9):
    if step == 5:
        with torch.no_grad():
            net.blocks[1].fc.bias.fill_(-9.0)
    loss = net(torch.randn(4, 6)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
