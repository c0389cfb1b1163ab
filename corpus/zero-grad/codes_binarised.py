"""Hashing of images: after the relaxed phase the codes are made binary, and what is before the sign learns nothing any more."""
import torch
from torch import nn

EXPECT = {
    "class": "late-zero", "kind": "zero-grad", "cut_marker": "CUT", "step": 500,
    "parameters": ["body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"],
    "set": "late_again", "written": "2026-11-22",
}


class Hash(nn.Module):
    def __init__(self, bits=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, bits))
        self.label, self.binary = nn.Linear(bits, 5), False

    def forward(self, x):
        code = self.body(x)
        code = torch.sign(code) if self.binary else torch.tanh(code)  # CUT
        return self.label(code)


torch.manual_seed(0)
model = Hash()
opt = torch.optim.Adam(model.parameters(), 2e-3)
centres = torch.randn(5, 10)
for step in range(700):
    model.binary = step >= 500
    y = torch.randint(0, 5, (16,))
    x = centres[y] + 0.5 * torch.randn(16, 10)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
