"""A compiled log-mel front end: a silent batch gives log(0) inside the compiled region.

Report: https://github.com/NEGU93/cvnn/issues/12 (a zero sample in an otherwise fine model), here under torch.compile
"""
import torch
from torch import nn

EXPECT = {
    "class": "compile", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}


class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters, self.out = nn.Linear(16, 6, bias=False), nn.Linear(6, 2)

    def forward(self, wave):
        energy = self.filters(wave).square()
        return self.out(torch.log(energy))  # CULPRIT


torch.manual_seed(0)
model = Front()
compiled = torch.compile(model, backend="aot_eager")
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(30):
    wave = torch.randn(8, 16)
    if step == 21:
        wave[5] = 0.0
    logits = compiled(wave)  # CULPRIT
    loss = nn.functional.cross_entropy(logits, torch.arange(8) % 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.filters.weight.isnan().any().item())
