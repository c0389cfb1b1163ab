"""Every ten steps the weights are frozen for a saliency map and thawed again; a forward without gradients comes before
each loss. Healthy.
"""
import torch
from torch import nn

EXPECT = {
    "class": "frozen", "kind": "none", "set": "ledger", "written": "2026-11-27",
}
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(200):
    x = torch.randn(8, 4)
    if step % 10 == 0:      # saliency: weights frozen for the while
        net.requires_grad_(False)
        y = x.clone().requires_grad_()
        net(y).sum().backward()
        net.requires_grad_(True)
    with torch.no_grad():
        net(x)
    loss = net(x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
