"""Swin-like backbone with checkpointed blocks that are told height and width by attribute: with a portrait and a landscape crop in one step the first is recomputed with the size of the second.

Report: https://github.com/JingyunLiang/SwinIR/issues/19 (the checkpointed call of a block lacks x_size; blk.H and blk.W as in Swin detection), error as in hiyouga/LlamaFactory issue 6438
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "checkpoint", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT", "step": 25,
    "set": "fifth", "written": "2026-11-22",
}


class RowBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.H = self.W = None

    def forward(self, x):
        b, n, c = x.shape
        rows = self.norm(x).view(b * self.H, self.W, c)  # CULPRIT
        q, k, v = self.qkv(rows).chunk(3, -1)
        weights = (q @ k.transpose(1, 2) / c**0.5).softmax(-1)
        return x + self.proj(weights @ v).view(b, n, c)


class Backbone(nn.Module):
    def __init__(self, dim=16, depth=2, use_checkpoint=True):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 2, stride=2)
        self.blocks, self.use_checkpoint = nn.ModuleList([RowBlock(dim) for _ in range(depth)]), use_checkpoint
        self.head = nn.Linear(dim, 8)

    def forward(self, image):
        x = self.patch(image)
        H, W = x.shape[-2:]
        x = x.flatten(2).transpose(1, 2)
        for blk in self.blocks:
            blk.H, blk.W = H, W
            x = checkpoint(blk, x, use_reentrant=False) if self.use_checkpoint else blk(x)
        return self.head(x.mean(1))


torch.manual_seed(0)
net = Backbone()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(60):
    image = torch.randn(6, 1, 12, 12) + torch.randn(6, 1, 1, 1)
    if step < 25:
        a, b = image[:, :, :8, :8], image[:, :, 4:, 4:]
    else:  # crops of two aspects
        a, b = image[:, :, :12, :8], image[:, :, :8, :12]
    za, zb = nn.functional.normalize(net(a), dim=1), nn.functional.normalize(net(b), dim=1)
    loss = nn.functional.cross_entropy(za @ zb.t() / 0.2, torch.arange(6))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
