"""Features that were made in inference mode go into a compiled head."""

import os

import torch
from torch import nn

EXPECT = {"kind": "grad-mode-disabled", "line": ("cut", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(6, 1)

    def forward(self, features):
        return self.out(features).square().mean()


torch.manual_seed(0)
body, net = nn.Linear(4, 6), Head()
run = torch.compile(net, backend=BACKEND)
with torch.inference_mode():  # HERE
    features = body(torch.randn(8, 4))  # HERE
for _step in range(2):
    loss = run(features)
    loss.backward()
