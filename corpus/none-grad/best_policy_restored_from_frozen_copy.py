"""Policy that is replaced by a copy of its frozen target network after 200 steps, so that nothing in it requires a gradient.
"""
import copy
import torch
from torch import nn

EXPECT = {
    "class": "frozen", "kind": "none-grad", "cut_marker": "CUT", "step": 200, "set": "ledger", "written": "2026-11-27",
}
policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
target = copy.deepcopy(policy).requires_grad_(False)  # CUT
opt = torch.optim.Adam(policy.parameters(), 1e-3)
for step in range(300):
    if step == 200:
        policy = copy.deepcopy(target)  # back to the best
        opt = torch.optim.Adam(policy.parameters(), 1e-3)
    s = torch.randn(16, 4)
    with torch.no_grad():
        q = target(s)
    loss = (policy(s) - 0.9 * q - 1).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
