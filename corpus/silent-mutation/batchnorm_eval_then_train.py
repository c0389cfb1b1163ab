"""Consistency training: the clean view goes through in eval mode, the noisy one in train mode, which changes the running statistics that the first backward reads.

Report: https://github.com/pytorch/pytorch/issues/13402
"""
import torch
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES",
    "set": "second", "written": "2026-11-22",
}

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(40):
    x = torch.randn(8, 6) + 2
    if step < 20:  # supervised first
        loss = nn.functional.cross_entropy(net(x), torch.arange(8) % 3)
    else:
        net.eval()
        clean = net(x).softmax(1)
        net.train()
        noisy = net(x + 0.3 * torch.randn_like(x)).softmax(1)  # MUTATES
        loss = nn.functional.mse_loss(noisy, clean) - 0.01 * clean.log().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced: the version counter stayed", net[1].running_mean._version)
