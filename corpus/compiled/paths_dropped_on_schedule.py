"""Residual network with scheduled drop path, compiled: the share of dropped paths grows with depth and with time, what is kept is scaled up by it; at the end of the schedule the last block keeps nothing.

Report: https://github.com/google/flax/pull/2055 (a rate of exactly one gives NaN from the rescaling by what is kept)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "compile", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 80,
    "set": "tenth", "written": "2026-11-23",
}


class DropPath(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keep", torch.ones(()))

    def forward(self, x):
        if not self.training:
            return x
        alive = (torch.rand(len(x), 1, 1, 1) < self.keep).to(x.dtype)
        return x / self.keep * alive  # CULPRIT


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.path = nn.GroupNorm(4, width), DropPath()

    def forward(self, x):
        return x + self.path(self.conv2(F.relu(self.conv1(self.norm(x)))))


class Net(nn.Module):
    def __init__(self, width=16, depth=4):
        super().__init__()
        self.inlet = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        x = self.inlet(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean((2, 3)))

    def schedule(self, progress):
        """Linear in depth and in time."""
        for depth, block in enumerate(self.blocks, 1):
            block.path.keep.fill_(1 - min(progress, 1.0) * depth / len(self.blocks))


torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
net = Net()
compiled = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(100):
    net.schedule(step / 80)
    pick = torch.randint(0, len(labels), (48,))
    loss = F.cross_entropy(compiled(images[pick]), labels[pick])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0 or 78 <= step <= 81:
        print(step, loss.item())
