"""Activation statistics are collected by forward hooks from the middle of training on; the network calls its blocks through forward, which knows no hooks.

Report: https://github.com/numenta/nupic.torch/pull/51 (also MPoL-dev/MPoL issue 151)
"""
import torch
from torch import nn

EXPECT = {"class": "hook", "kind": "hook-never-fires", "hook_marker": "HOOK", "set": "third", "written": "2026-11-22"}


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(dim), nn.Linear(dim, dim)

    def forward(self, x, scale=1.0):
        return x + scale * self.fc(self.norm(x)).relu()


class Net(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.stem, self.out = nn.Linear(6, 16), nn.Linear(16, 3)
        self.blocks = nn.ModuleList(Block(16) for _ in range(depth))

    def forward(self, x):
        x = self.stem(x)
        for i, block in enumerate(self.blocks):
            x = block.forward(x, scale=1.0 / (i + 1))
        return self.out(x)


class DutyCycle:
    def __init__(self, net):
        self.active = [0.0] * len(net.blocks)
        for i, block in enumerate(net.blocks):
            block.register_forward_hook(self.record(i))  # HOOK

    def record(self, i):
        def hook(module, inputs, output):
            self.active[i] = 0.9 * self.active[i] + 0.1 * (output > 0).float().mean().item()

        return hook


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
cycle = None
for step in range(60):
    if step == 20:
        cycle = DutyCycle(net)
    loss = nn.functional.cross_entropy(net(torch.randn(9, 6)), torch.arange(9) % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", cycle.active)
