"""Healthy: a small encoder under bfloat16 autocast with checkpointed blocks from some step on, dropout in them, padding as minus infinity, gradients accumulated over two halves.

Report it resembles: https://github.com/pytorch/pytorch/issues/141896 (checkpoint without reentry inside autocast; here it recomputes what it should)
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {"class": "healthy", "kind": "none", "set": "eighth", "written": "2026-11-22"}


class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.proj = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = (q @ k.transpose(2, 3)).float() / k.shape[-1] ** 0.5 + bias
        mixed = (scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.proj(mixed))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Encoder(nn.Module):
    def __init__(self, words=24, dim=24, layers=2):
        super().__init__()
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.place = nn.Parameter(0.02 * torch.randn(12, dim))
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 2)
        self.checkpointing = False

    def forward(self, ids):
        padded = ids == 0
        bias = torch.zeros(ids.shape).masked_fill(padded, float("-inf"))[:, None, None]
        x = self.embed(ids) + self.place[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, bias, use_reentrant=False) if self.checkpointing else block(x, bias)
        x = self.norm(x).masked_fill(padded.unsqueeze(-1), 0.0)
        return self.head(x.sum(1) / (~padded).sum(1, keepdim=True))


def sentences(n, length=12):
    ids = torch.randint(1, 24, (n, length))
    ends = torch.randint(4, length + 1, (n, 1))
    ids[torch.arange(length) >= ends] = 0
    ids[0, :] = torch.randint(1, 24, (length,))
    return ids, ((ids == 3) | (ids == 4) | (ids == 5)).any(1).long()


torch.manual_seed(0)
model = Encoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(150):
    model.checkpointing = step >= 70
    for _ in range(2):
        ids, label = sentences(32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float(), label) / 2
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 25 == 0:
        print(step, 2 * loss.item())
