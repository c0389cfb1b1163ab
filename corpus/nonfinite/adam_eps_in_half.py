"""Feature grid kept in half precision: the optimizer's eps of 1e-8 is zero there, an entry without gradient is updated by 0 / 0.

Report: https://github.com/nerfstudio-project/nerfstudio/pull/134
"""
import torch
from torch import nn

EXPECT = {
    "class": "optimizer-step", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "second", "written": "2026-11-22",
}


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.coarse = nn.Parameter(0.1 * torch.randn(8, 4))
        self.fine = nn.Parameter((0.1 * torch.randn(32, 4)).half())
        self.out = nn.Linear(4, 1)

    def forward(self, x, with_fine):
        h = self.coarse[(x * 8).long()]
        if with_fine:
            h = h + self.fine[(x * 32).long()].float()
        return self.out(h)


torch.manual_seed(0)
field = Field()
opt = torch.optim.Adam(field.parameters(), 1e-2, eps=1e-8)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.99)
for step in range(60):
    x = torch.rand(16)
    loss = nn.functional.mse_loss(field(x, with_fine=step >= 25)[:, 0], torch.sin(6 * x))  # coarse to fine
    opt.zero_grad()
    loss.backward()
    opt.step()  # CULPRIT
    sched.step()
    if loss.isnan():
        print("reproduced at", step)
        break
