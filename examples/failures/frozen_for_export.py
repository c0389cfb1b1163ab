"""Every 50 steps the model is frozen for an export, and only the head is unfrozen again."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def export(net):
    for p in net.parameters():
        p.requires_grad = False  # CUT
    return torch.jit.trace(net, torch.randn(1, 6))


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(80):
    if step == 50:
        export(net)
        net.head.requires_grad_(True)
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
