"""use_cache=True together with gradient checkpointing: the recomputation appends to the key cache a second time."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": "checkpoint-mismatch", "line": ("cause", "CULPRIT")}


class Cache:
    def __init__(self):
        self.k, self.v = {}, {}

    def update(self, i, k, v):
        if i in self.k:
            k, v = torch.cat([self.k[i], k], 1), torch.cat([self.v[i], v], 1)
        self.k[i], self.v[i] = k, v  # CULPRIT
        return k, v


class Attention(nn.Module):
    def __init__(self, i, d):
        super().__init__()
        self.i, self.qkv, self.out = i, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, cache):
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = cache.update(self.i, k, v)
        w = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
        return x + self.out(w @ v)


class Decoder(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.embed = nn.Embedding(20, d)
        self.layers = nn.ModuleList(Attention(i, d) for i in range(2))
        self.lm_head = nn.Linear(d, 20)

    def forward(self, tokens):
        h, cache = self.embed(tokens), Cache()
        for layer in self.layers:
            h = checkpoint(layer, h, cache, use_reentrant=False)  # REGION
        return self.lm_head(h)


torch.manual_seed(0)
model = Decoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.randint(0, 20, (2, 7))
for _ in range(3):
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
