"""Each layer's result is damped by a constant, in half precision: the gradient shrinks by it from layer to layer."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "vanishing-gradient",
    "line": ("cause", "HERE"),
    "module": "encoder",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Damped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
        nn.init.orthogonal_(self.inner.weight)

    def forward(self, x):
        x = torch.tanh(self.inner(x))
        return x * 0.15  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Sequential(*(Damped() for _ in range(12))), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


torch.manual_seed(6)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
for _step in range(5):
    x = torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (run(x) - x.mean(-1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
