"""Statistics pooling in a compiled network: a flat signal the root of a variance of zero has no derivative.

Report: https://github.com/pyg-team/pytorch_geometric/issues/2559 (root of a variance), here inside torch.compile
"""
import torch
from torch import nn

EXPECT = {
    "class": "compile", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "second", "written": "2026-11-22",
}


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Linear(1, 8), nn.Linear(16, 3)

    def forward(self, signal):
        h = self.embed(signal[..., None]).tanh()
        stats = torch.cat([h.mean(1), h.var(1).sqrt()], 1)  # CULPRIT
        return self.out(stats)


torch.manual_seed(0)
net = Pooled()
step_fn = torch.compile(net, backend="aot_eager")
opt = torch.optim.AdamW(net.parameters(), 1e-3)
sched = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 20)
for step in range(60):
    signal = torch.randn(4, 32).cumsum(1)
    if step == 37:
        signal[2] = 0.5  # the sensor was stuck
    loss = nn.functional.cross_entropy(step_fn(signal), torch.tensor([0, 1, 2, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if net.embed.weight.isnan().any():
        print("reproduced at", step, loss.item())
        break
