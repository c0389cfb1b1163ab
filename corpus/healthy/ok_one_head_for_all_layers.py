"""A detector's decoder: one head judges the result of each layer, the layers are copies of the first, and activations are repeated."""
import copy

import torch
from torch import nn

EXPECT = {"class": "module-repeated", "framework": "plain", "kind": None, "set": "ledger", "written": "2026-11-27"}


class Decoder(nn.Module):
    def __init__(self, width=16, depth=3, refine=False):
        super().__init__()
        layer = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), *[nn.PReLU(), nn.Identity()] * 2)
        self.layers = nn.ModuleList([copy.deepcopy(one) for one in [layer] * depth])
        self.box = nn.Linear(width, 4)
        if refine:
            self.boxes = nn.ModuleList([copy.deepcopy(self.box) for _ in range(depth)])
        else:
            self.boxes = nn.ModuleList([self.box for _ in range(depth)])
        self.scores = nn.Sequential(*[nn.Linear(width, width) for _ in range(2)], *[nn.ReLU()] * 2, nn.Linear(width, 1))

    def forward(self, x):
        found = []
        for layer, box in zip(self.layers, self.boxes):
            x = x + layer(x)
            found.append((box(x), self.scores(x)))
        return found


torch.manual_seed(1)
decoder = Decoder()
optimizer = torch.optim.AdamW(decoder.parameters(), lr=2e-3)
for step in range(80):
    x = torch.randn(32, 16)
    loss = sum((boxes - x[:, :4].tanh()).abs().mean() + (score - x.mean(1, keepdim=True)).abs().mean() for boxes, score in decoder(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
