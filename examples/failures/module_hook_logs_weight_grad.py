"""Gradient logger: full backward pre-hooks on layers read layer.weight.grad, which is filled later."""

import collections

import torch
from torch import nn

EXPECT = {"kind": "hook-order", "line": ("stale", "STALE")}


class GradLogger:
    def __init__(self, model):
        self.log = collections.defaultdict(list)
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                module.register_full_backward_pre_hook(self.make(name))  # HOOK

    def make(self, name):
        def hook(module, grad_output):
            g = module.weight.grad  # STALE
            self.log[name].append(float("nan") if g is None else g.norm().item())

        return hook


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
logger = GradLogger(model)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    x, y = torch.randn(32, 5, requires_grad=True), torch.randint(0, 3, (32,))
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
print({"reproduced": all(v != v for values in logger.log.values() for v in values), "log": dict(logger.log)})
