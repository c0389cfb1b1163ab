"""Regression with the same block for every layer, the last one too: after targets have been shifted by their mean, the ReLU at the output is zero for every sample and nothing gets a gradient any more.

Report: https://github.com/chelsea0x3b/dfdx/issues/486 (all gradients are zero: the ReLU on the output layer)
"""
import torch
from torch import nn

EXPECT = {
    "class": "dies-late", "kind": "zero-grad", "cut_marker": "CUT", "module": "layers.2",
    "set": "seventh", "written": "2026-11-22",
}


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        x = self.linear(x)
        return torch.relu(x)  # CUT


class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.Sequential(*[Block(a, b) for a, b in zip(sizes, sizes[1:])])

    def forward(self, x):
        return self.layers(x).squeeze(1)


class Targets:
    """First prices as they are, later relative to the going rate."""

    def __init__(self, switch):
        self.switch = switch

    def __call__(self, x, step):
        price = 3 + 0.5 * x[:, 0] + 0.2 * x[:, 1].abs()
        return price if step < self.switch else price - 6


torch.manual_seed(0)
net, targets = Net((5, 24, 24, 1)), Targets(switch=80)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(300):
    x = torch.randn(32, 5)
    loss = nn.functional.mse_loss(net(x), targets(x, step))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item(), sum(p.grad.abs().sum().item() for p in net.parameters()))
