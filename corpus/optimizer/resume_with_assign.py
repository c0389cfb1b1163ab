"""Best checkpoint restored in mid-run with assign=True: the module holds new parameters, the optimizer the old ones.

Report: https://github.com/pytorch/pytorch/pull/121158 (the warning in the documentation came from this)
"""
import copy

import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["0.weight", "0.bias", "2.weight", "2.bias"],
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 1))
opt = torch.optim.AdamW(model.parameters(), 1e-2)  # OPTIMIZER
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=3)
best, bad, kept = float("inf"), 0, None
xv = torch.randn(64, 5)
for epoch in range(14):
    for _ in range(5):
        x = torch.randn(16, 5)
        loss = (model(x) - x[:, :1] * x[:, 1:2]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        value = (model(xv) - xv[:, :1] * xv[:, 1:2]).square().mean().item()
    sched.step(value)
    if epoch < 6:
        best, kept = value, copy.deepcopy(model.state_dict())
    elif epoch == 6:
        model.load_state_dict(kept, assign=True)
        for p in model.parameters():
            p.requires_grad_(True)
        frozen = [p.detach().clone() for p in model.parameters()]
print("reproduced", all(torch.equal(a, b) for a, b in zip(frozen, model.parameters())))
