"""Layers are frozen one after the other, one more every 50 steps, and the last stage freezes the last layer, too. A metric
is computed without gradients just before the loss.
"""
import torch
from torch import nn

EXPECT = {
    "class": "frozen", "kind": "none-grad", "cut_marker": "CUT", "step": 150, "set": "ledger", "written": "2026-11-27",
}
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
layers = [m for m in net if isinstance(m, nn.Linear)]
opt = torch.optim.Adam(net.parameters(), 1e-2)
def freeze_up_to(n):
    for i, layer in enumerate(layers):
        for p in layer.parameters():
            p.requires_grad = i >= n  # CUT
for step in range(400):
    if step % 50 == 0:
        freeze_up_to(step // 50)
    x = torch.randn(32, 6)
    with torch.no_grad():
        base = net(x).mean()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
