"""A context that freezes a model while it is scored gives trainability back by name, and the biases are not among the names: from the first score on they do not learn."""
import contextlib

import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "parameters": ["0.bias", "2.bias"], "step": 190,
    "set": "late_again", "written": "2026-11-22",
}


@contextlib.contextmanager
def frozen(model):
    for p in model.parameters():
        p.requires_grad_(False)  # CUT
    yield
    for name, p in model.named_parameters():
        if name.endswith("weight"):
            p.requires_grad_(True)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(400):
    x = torch.randn(16, 5)
    loss = nn.functional.mse_loss(net(x)[:, 0], x[:, 0].abs())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step in (189, 289):
        with frozen(net):
            probe = torch.randn(64, 5, requires_grad=True)
            slope = torch.autograd.grad(net(probe).sum(), probe)[0]
        print(step, round(loss.item(), 4), round(slope.norm().item(), 3))
