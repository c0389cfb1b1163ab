"""Features are detached inside the compiled model: the encoder gets no gradient."""

import os

import torch
from torch import nn

EXPECT = {"op": "detach", "kind": "none-grad", "line": ("cut", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 6), nn.Linear(6, 1)

    def forward(self, x):
        features = self.encoder(x).relu()
        features = features.detach()  # HERE
        return self.head(features)


torch.manual_seed(13)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters())
for _step in range(6):
    x = torch.randn(8, 4)
    loss = (run(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
