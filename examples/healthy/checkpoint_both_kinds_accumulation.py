"""Healthy: both kinds of checkpointing with dropout, gradient accumulation over 4 micro-batches."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": None}


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attn, self.ff = (
            nn.MultiheadAttention(d, 2, dropout=0.1, batch_first=True),
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * d, d)),
        )
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, mask):
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.ff(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocab=20, d=12, depth=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Parameter(torch.zeros(1, 16, d))
        self.layers, self.head = nn.ModuleList(Layer(d) for _ in range(depth)), nn.Linear(d, vocab)

    def forward(self, t):
        x = self.tok(t) + self.pos[:, : t.shape[1]]
        mask = torch.full((t.shape[1],) * 2, float("-inf")).triu(1)
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, mask, use_reentrant=i % 2 == 0)
        return self.head(x)


torch.manual_seed(0)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(12):
    t = torch.randint(0, 20, (2, 11))
    loss = nn.functional.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()) / 4
    loss.backward()
    if step % 4 == 3:
        opt.step()
        opt.zero_grad()
print(loss.item())
