"""Mixture of experts: routing is soft during the warm-up, then each row goes to the expert of the largest score, and the gate learns nothing more."""
import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "step": 733,
    "parameters": ["layer.gate.weight", "layer.gate.bias"],
    "set": "late", "written": "2026-11-22",
}


class Experts(nn.Module):
    def __init__(self, dim, count):
        super().__init__()
        self.gate = nn.Linear(dim, count)
        self.up = nn.Parameter(torch.randn(count, dim, dim) / dim**0.5)
        self.warm = True

    def forward(self, x):
        scores = self.gate(x)
        if self.warm:
            share = scores.softmax(1)
        else:
            share = nn.functional.one_hot(scores.argmax(1), scores.shape[1]).to(x.dtype)  # CUT
        each = torch.einsum("bd,edh->beh", x, self.up).tanh()
        return x + (share[:, :, None] * each).sum(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs, self.layer, self.out = nn.Linear(5, 12), Experts(12, 4), nn.Linear(12, 1)

    def forward(self, x):
        return self.out(self.layer(self.inputs(x)))[:, 0]


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), 2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 1000)
for step in range(950):
    net.layer.warm = step < 733
    x = torch.randn(24, 5)
    y = torch.where(x[:, 0] > 0, x[:, 1] * 2, x[:, 2].sin() - x[:, 3])
    loss = nn.functional.smooth_l1_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    schedule.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
