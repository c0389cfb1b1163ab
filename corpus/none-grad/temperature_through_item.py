"""Contrastive model: the learned temperature enters the logits as a Python number.

Report: https://github.com/microsoft/VQ-Diffusion/issues/6 is the symptom under DDP (a parameter without gradient); here .item() is why
"""
import torch
from torch import nn

EXPECT = {
    "class": "cut", "kind": "none-grad", "parameters": ["log_temperature"], "cut_marker": "CUT",
    "set": "first", "written": "2026-11-22",
}


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(8, 4), nn.Linear(6, 4)
        self.log_temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        a, b = nn.functional.normalize(self.image(a), dim=1), nn.functional.normalize(self.text(b), dim=1)
        scale = self.log_temperature.exp().item()  # CUT
        return scale * a @ b.t()


torch.manual_seed(0)
clip = Clip()
opt = torch.optim.AdamW(clip.parameters(), 1e-3)
for step in range(20):
    logits = clip(torch.randn(6, 8), torch.randn(6, 6))
    y = torch.arange(6)
    loss = (nn.functional.cross_entropy(logits, y) + nn.functional.cross_entropy(logits.t(), y)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", clip.log_temperature.grad is None)
