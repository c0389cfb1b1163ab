"""Regression in a block of set_grad_enabled, whose condition becomes false at step 210; a metric in a no_grad block
follows the loss.
"""
import torch
from torch import nn

EXPECT = {
    "class": "frozen", "kind": "grad-mode-disabled", "cut_marker": "CUT", "set": "ledger", "written": "2026-11-27", "step": 210,
}
net = nn.Linear(4, 1); opt = torch.optim.SGD(net.parameters(), 1e-2)
crit = nn.MSELoss()
for step in range(300):
    x = torch.randn(8, 4); y = x.sum(1, keepdim=True)
    with torch.set_grad_enabled(step < 210):  # CUT
        out = net(x)
        loss = crit(out, y)
    with torch.no_grad():
        metric = (out - y).abs().mean()
    opt.zero_grad(); loss.backward(); opt.step()
