"""A guard against loss spikes clamps the value and wraps it in a new tensor that requires grad: from then on nothing trains.

Report: https://github.com/ronghuaiyang/arcface-pytorch/issues/56 (a loss that was made to require grad)
"""
import torch
from torch import nn

EXPECT = {
    "class": "loss-leaf", "kind": "none-grad", "cut_marker": "CUT",
    "parameters": ["0.weight", "0.bias", "2.weight", "2.bias"],
    "set": "first", "written": "2026-11-22",
}


def guard(loss, step):
    limit = 1e9 if step < 30 else 0.05  # schedule of the allowed loss
    if loss.item() > limit:
        loss = torch.tensor(min(loss.item(), limit), requires_grad=True)  # CUT
    return loss


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(60):
    x = torch.randn(16, 4)
    loss = guard((net(x) - x.prod(1, keepdim=True)).square().mean(), step)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", all(p.grad is None for p in net.parameters()))
