"""Causal language model that is read in two chunks with a cache of keys and values; when the blocks are checkpointed for longer texts, the recomputation appends to the same cache once more.

Report: https://github.com/pytorch/pytorch/issues/155171 (checkpointing of qwen2: the keys have a length of 171 in the forward and of 342 in the recomputation)
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "late-checkpoint", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT", "step": 40,
    "set": "ninth", "written": "2026-11-23",
}
VOCAB = 30


class Cache:
    def __init__(self):
        self.keys, self.values = {}, {}

    def update(self, layer, k, v):
        if layer in self.keys:
            k, v = torch.cat([self.keys[layer], k], 2), torch.cat([self.values[layer], v], 2)  # CULPRIT
        self.keys[layer], self.values[layer] = k, v  # CULPRIT
        return k, v

    def length(self):
        return self.keys[0].shape[2] if self.keys else 0


class Block(nn.Module):
    def __init__(self, index, dim, heads=2):
        super().__init__()
        self.index, self.heads = index, heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, cache):
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.update(self.index, k, v)
        total = k.shape[2]
        future = torch.ones(t, total, dtype=torch.bool).triu(total - t + 1)
        score = (q @ k.transpose(2, 3) / (d // self.heads) ** 0.5).masked_fill(future, float("-inf"))
        x = x + self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, dim=24, layers=2, longest=64):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, dim), nn.Embedding(longest, dim)
        self.blocks = nn.ModuleList(Block(i, dim) for i in range(layers))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB)
        self.checkpointing = False

    def forward(self, ids, cache=None):
        start = cache.length() if cache is not None else 0
        x = self.embed(ids) + self.position(torch.arange(start, start + ids.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, cache, use_reentrant=False) if self.checkpointing and self.training else block(x, cache)
        return self.head(self.norm(x))


def texts(n, length):
    period = torch.randint(2, VOCAB, (n, 6))
    return period.repeat(1, length // 6 + 1)[:, : length + 1]


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(80):
    if step == 40:
        model.checkpointing = True
    ids = texts(8, 24 if step < 40 else 48)
    cache, logits = Cache(), []
    for chunk in ids[:, :-1].chunk(2, 1):
        logits.append(model(chunk, cache))
    loss = F.cross_entropy(torch.cat(logits, 1).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
