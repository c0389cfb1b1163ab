"""A frozen backbone is marked with the attribute too, and thawed later with the method: nothing else is said of it."""
import torch
from torch import nn

EXPECT = {"class": "freeze-without-effect", "framework": "plain", "kind": None, "set": "ledger", "written": "2026-11-27"}


def freeze(module):
    module.requires_grad_(False)
    module.requires_grad = False


def thaw(module):
    module.requires_grad_(True)
    del module.requires_grad


torch.manual_seed(0)
backbone, head = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 1)
freeze(backbone)
optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.05)
for step in range(120):
    if step == 60:
        thaw(backbone)
    x = torch.randn(32, 8)
    loss = (head(backbone(x)) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
