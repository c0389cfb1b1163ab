"""Keypoint attention for geo-localisation: from the second stage on the border of the attention map is set to zero, in the sigmoid's own output.

Report: https://github.com/AggMan96/RK-Net/issues/9 (output 0 of ReluBackward0 was modified; att[:, :, :, 0] = 0 under self.polish)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 133,
    "set": "fourth", "written": "2026-11-22",
}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.polish = nn.Conv2d(6, 1, 1), False

    def forward(self, x):
        att = torch.sigmoid(self.conv(x))
        if self.polish:
            att[:, :, :, 0] = 0  # MUTATES
            att[:, :, :, -1] = 0  # MUTATES
            att[:, :, 0, :] = 0  # MUTATES
            att[:, :, -1, :] = 0  # MUTATES
        return x + x * att


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.attention, self.out = nn.Conv2d(1, 6, 3), Attention(), nn.Linear(6, 5)

    def forward(self, x):
        return self.out(self.attention(torch.relu(self.stem(x))).mean((2, 3)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
step = 0
for stage, steps in enumerate((133, 60)):
    net.attention.polish = stage > 0
    for _ in range(steps):
        place = torch.randint(0, 5, (8,))
        x = 0.3 * torch.randn(8, 1, 8, 8)
        x[torch.arange(8), 0, place + 1, place + 1] += 2
        loss = nn.functional.cross_entropy(net(x), place)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
    print(stage, step, loss.item())
