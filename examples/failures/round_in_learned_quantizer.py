"""Learned step size quantisation without the straight-through estimator: round has zero slope."""

import torch
from torch import nn

EXPECT = {"kind": "zero-grad", "line": ("cut", "CUT"), "module": "quant"}


class Quantizer(nn.Module):
    def __init__(self, bits=4):
        super().__init__()
        self.step, self.levels = nn.Parameter(torch.tensor(0.1)), 2 ** (bits - 1)

    def forward(self, x):
        q = torch.round(x / self.step).clamp(-self.levels, self.levels - 1)  # CUT
        return q * self.step


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.quant, self.decoder = (
            nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 4)),
            Quantizer(),
            nn.Linear(4, 12),
        )

    def forward(self, x):
        return self.decoder(self.quant(self.encoder(x)))


torch.manual_seed(0)
codec = Codec()
opt = torch.optim.Adam(codec.parameters(), lr=1e-3)
for _ in range(4):
    x = torch.randn(32, 12)
    loss = nn.functional.mse_loss(codec(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": not codec.encoder[0].weight.grad.any().item()})
