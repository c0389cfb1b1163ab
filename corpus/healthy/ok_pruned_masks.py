"""Healthy: unstructured pruning in mid-run; weight is a product from then on and has no gradient of its own, weight_orig is the parameter that was in the optimizer before.

Report it resembles: https://github.com/pytorch/pytorch/issues/102245
"""
import torch
from torch import nn
from torch.nn.utils import prune

EXPECT = {"class": "healthy", "kind": "none", "set": "third", "written": "2026-11-22"}

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(96, 4))
opt = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
for step in range(60):
    if step in (20, 40):
        layers = [(m, "weight") for m in model if isinstance(m, (nn.Conv2d, nn.Linear))]
        prune.global_unstructured(layers, pruning_method=prune.L1Unstructured, amount=0.3)
    x, y = torch.randn(8, 1, 8, 8), torch.arange(8) % 4
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
for module, name in layers:
    prune.remove(module, name)
print("loss", loss.item(), (model[5].weight == 0).float().mean().item())
