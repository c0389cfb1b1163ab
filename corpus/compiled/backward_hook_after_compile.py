"""A full backward hook is registered on a layer after the model was compiled and run; it never runs.

Report: https://github.com/pytorch/pytorch/issues/117265 (also 115750)
"""
import torch
from torch import nn

EXPECT = {
    "class": "compile", "kind": "hook-never-fires", "hook_marker": "HOOK",
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
seen = []
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@torch.compile(backend="aot_eager")
def forward(x):
    return model(x)


opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(12):
    if step == 4:
        model[0].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].norm().item()))  # HOOK
    x = torch.randn(8, 4)
    loss = nn.functional.cross_entropy(forward(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", len(seen))
