"""Port of a grouped-query model: one layer's keys are repeated in the wrong order (repeat instead of repeat_interleave).

Report: https://github.com/idiap/fast-transformers/issues/103 is the kind of report (ported layers that do not agree); the mistake is grouped-query's own
"""
import copy

import torch
from torch import nn

EXPECT = {
    "class": "divergence", "kind": "first-divergence", "module": "layers.1.attn",
    "set": "first", "written": "2026-11-22",
}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o, self.interleave = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), True

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, 4, 4).transpose(1, 2)
        k, v = self.kv(x).view(b, n, 2, 8).transpose(1, 2).chunk(2, -1)
        if self.interleave:
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        else:
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        y = (q @ k.transpose(2, 3) / 2).softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(b, n, 16))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn, self.ff = nn.LayerNorm(16), Attention(), nn.Linear(16, 16)

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + torch.relu(self.ff(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.head = nn.Embedding(20, 16), nn.ModuleList(Layer() for _ in range(3)), nn.Linear(16, 20)

    def forward(self, t):
        h = self.embed(t)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


torch.manual_seed(0)
reference = Model()
port = copy.deepcopy(reference)
port.layers[1].attn.interleave = False
tokens = torch.randint(0, 20, (2, 7))
for model in (reference, port):
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    print(loss.item())
