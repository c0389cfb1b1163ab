"""A quantiser rounds without a straight-through estimator: zeros reach the encoder."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "zero-grad",
    "line": ("cut", "HERE"),
    "or": [("none-grad", "HERE", "cut")],
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        code = torch.round(self.encoder(x))  # HERE
        return self.decoder(code)


torch.manual_seed(15)
net = Quantised()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters())
for _step in range(8):
    x = torch.randn(16, 4)
    loss = (run(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
