"""Small policy on a decoder whose blocks are checkpointed once sequences get longer: the key-value cache of generation is left on, the recomputation appends to what the forward has put there.

Report: https://github.com/shihao1895/MemoryVLA/issues/18 (CheckpointError, the recomputed sequence is exactly twice as long; use_cache left enabled)
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "late-checkpoint", "kind": "checkpoint-mismatch", "culprit_marker": "CULPRIT", "step": 50,
    "set": "eighth", "written": "2026-11-22",
}


class LayerCache:
    def __init__(self, layers):
        self.keys, self.values = [None] * layers, [None] * layers

    def update(self, layer, key, value):
        if self.keys[layer] is not None:
            key = torch.cat([self.keys[layer], key], 2)  # CULPRIT
            value = torch.cat([self.values[layer], value], 2)  # CULPRIT
        self.keys[layer], self.values[layer] = key.detach(), value.detach()  # CULPRIT
        return key, value


class Attention(nn.Module):
    def __init__(self, dim, heads, index):
        super().__init__()
        self.heads, self.index = heads, index
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, cache=None):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = cache.update(self.index, k, v)  # CULPRIT
        mask = torch.ones(t, k.shape[2], dtype=torch.bool).tril(k.shape[2] - t)
        scores = (q @ k.transpose(2, 3) / k.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads, index):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads, index)
        self.norm2, self.mlp = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, cache=None):
        x = x + self.attn(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class ActionDecoder(nn.Module):
    def __init__(self, inputs=6, dim=16, layers=2):
        super().__init__()
        self.embed = nn.Linear(inputs, dim)
        self.blocks = nn.ModuleList(Block(dim, 2, i) for i in range(layers))
        self.head = nn.Linear(dim, 2)
        self.use_cache, self.gradient_checkpointing = True, False

    def forward(self, observations):
        cache = LayerCache(len(self.blocks)) if self.use_cache else None
        x = self.embed(observations)
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, cache, use_reentrant=False)
            else:
                x = block(x, cache)
        return self.head(x)


torch.manual_seed(0)
model = ActionDecoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(90):
    model.gradient_checkpointing = step >= 50
    observations = torch.randn(8, 10 if step < 50 else 20, 6)
    action = torch.stack([observations[..., 0].cumsum(1).tanh(), observations[..., 1]], -1)
    loss = F.smooth_l1_loss(model(observations), action)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
