"""Prototypes are normalised through .data twice per step: before the product, harmless, and again before backward, not.

Report: https://github.com/facebookresearch/moco/issues/70 (updates written through .data)
"""
import torch
from torch import nn

EXPECT = {
    "class": "silent-write", "kind": "silent-mutation", "mutating_marker": "MUTATES",
    "set": "first", "written": "2026-11-22",
}


class Prototypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.bank = nn.Linear(6, 4), nn.Linear(4, 10, bias=False)

    def tidy(self):
        self.bank.weight.data.copy_(nn.functional.normalize(self.bank.weight.data, dim=1))

    def forward(self, x):
        self.tidy()
        return self.bank(nn.functional.normalize(self.encoder(x), dim=1))


torch.manual_seed(0)
model = Prototypes()
opt = torch.optim.SGD(model.parameters(), 0.05)
for step in range(40):
    x = torch.randn(16, 6)
    scores = model(x)
    if step >= 25:  # sharpen before the loss
        model.bank.weight.data.mul_(1.5)  # MUTATES
    loss = nn.functional.cross_entropy(scores / 0.1, torch.randint(0, 10, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
