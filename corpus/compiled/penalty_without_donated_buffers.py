"""The donated buffers were switched off, as torch's error asks for: the second derivative is still not there."""

import os

import torch
import torch._functorch.config
from torch import nn

EXPECT = {
    "kind": "backward-error",
    "line": ("cause", "HERE"),
    "says": ["second derivative", "uncompiled"],
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")
torch._functorch.config.donated_buffer = False


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 16), nn.Linear(16, 1)

    def forward(self, positions):
        return self.down(nn.functional.silu(self.up(positions))).sum()


torch.manual_seed(0)
net = Energy()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.Adam(net.parameters())
for _step in range(4):
    positions = torch.randn(10, 3, requires_grad=True)
    energy = run(positions)  # HERE
    (forces,) = torch.autograd.grad(-energy, positions, create_graph=True)
    loss = (forces + positions.detach()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
