"""In step 20 a row of almost no length is normalised in the region: one weight gets a gradient beyond all others."""

import os

import torch
from torch import nn

EXPECT = {
    "kind": "exploding-gradient",
    "line": ("cause", "HERE"),
    "module": "directions",
    "set": "compiled",
    "written": "2026-11-23",
}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Directions(nn.Module):
    def forward(self, x):
        return x / x.square().sum(-1, keepdim=True).sqrt()  # HERE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.directions = nn.Embedding(30, 8), Directions()
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.directions(self.embed(tokens)))))


torch.manual_seed(7)
net = Net()
run = torch.compile(net, backend=BACKEND)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(24):
    tokens = torch.randint(29, (16,))
    if step == 20:
        with torch.no_grad():
            net.embed.weight[29] = 1e-9 * torch.randn(8)
        tokens[0] = 29
    loss = run(tokens).square().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
