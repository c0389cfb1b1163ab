"""T5-style feed-forward block in half precision: an outlier token pushes the second matrix product over 65504.

Report: https://github.com/huggingface/transformers/issues/5651
"""
import torch
from torch import nn

EXPECT = {
    "class": "overflow", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "blocks.1.ff",
    "set": "first", "written": "2026-11-22",
}


class DenseReluDense(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi, self.wo = nn.Linear(16, 64, bias=False), nn.Linear(64, 16, bias=False)

    def forward(self, h):
        h = torch.relu(self.wi(h))
        return torch.nn.functional.linear(h, self.wo.weight)  # CULPRIT


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.ff = nn.LayerNorm(16), DenseReluDense()

    def forward(self, x):
        return x + self.ff(self.norm(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.final = nn.LayerNorm(16)
        self.embed, self.blocks, self.out = nn.Embedding(20, 16), nn.ModuleList(Block() for _ in range(2)), nn.Linear(16, 20)

    def forward(self, t):
        h = self.embed(t)
        for block in self.blocks:
            h = block(h)
        return self.out(self.final(h))


torch.manual_seed(0)
model = Encoder().half()
opt = torch.optim.SGD(model.parameters(), 1e-3)
for step in range(30):
    t = torch.randint(0, 19, (4, 6))
    if step == 20:
        with torch.no_grad():  # a checkpoint of a model trained in bfloat16
            model.blocks[1].ff.wi.weight.mul_(300)
            model.blocks[1].ff.wo.weight.mul_(900)
    loss = nn.functional.cross_entropy(model(t).float().flatten(0, 1), t.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.embed.weight.isnan().any().item())
