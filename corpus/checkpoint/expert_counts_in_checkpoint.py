"""Mixture of experts balanced by a bias: the tokens per expert are counted in forward, and once more when the checkpointed block is recomputed.

Report: https://github.com/pytorch/torchtitan/pull/1593 (also NVIDIA-NeMo/Automodel pull 3247)
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "checkpoint", "kind": "checkpoint-side-effect", "region_marker": "REGION",
    "set": "second", "written": "2026-11-22",
}


class MoE(nn.Module):
    def __init__(self, dim=8, experts=4):
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, dim, dim) / 3)
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("tokens_per_expert", torch.zeros(experts))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        top = (scores + self.bias).argmax(-1)
        with torch.no_grad():
            self.tokens_per_expert.add_(torch.bincount(top.flatten(), minlength=len(self.bias)).float())
        return x + torch.einsum("btd,btde->bte", x, self.up[top]) * scores.gather(-1, top[..., None])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.layers = nn.ModuleList([MoE(), MoE()])
        self.out = nn.Linear(8, 20)

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            h = checkpoint(layer, h, use_reentrant=False)  # REGION
        return self.out(h)


torch.manual_seed(0)
model = Model()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(25):
    ids = torch.randint(0, 20, (2, 6))
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    counted = model.layers[0].tokens_per_expert.sum().item()
    for layer in model.layers:
        layer.bias += 1e-3 * torch.sign(layer.tokens_per_expert.mean() - layer.tokens_per_expert)
        layer.tokens_per_expert.zero_()
    opt.step()
print("reproduced", counted, "of", ids.numel())
