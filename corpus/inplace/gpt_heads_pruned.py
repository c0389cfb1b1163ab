"""Tiny GPT: after a while the least used heads are switched off, by writing zeros into the attention weights that softmax has kept."""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "module": "blocks.1.attn", "step": 317,
    "set": "late", "written": "2026-11-22",
}


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.qkv, self.out, self.heads, self.pruned = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads, []

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5
        weights = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf")).softmax(-1)
        if self.pruned:
            weights[:, self.pruned] = 0.0  # MUTATES
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))

    def importance(self):
        return self.out.weight.detach().view(-1, self.heads, self.out.weight.shape[1] // self.heads).norm(dim=(0, 2))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim), Attention(dim, 4), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocab=16, dim=16, length=12):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, dim), nn.Parameter(0.02 * torch.randn(length, dim))
        self.blocks, self.head = nn.ModuleList([Block(dim), Block(dim)]), nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.token(ids) + self.position[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), 2e-3)
for step in range(500):
    if step == 317:
        model.blocks[1].attn.pruned = model.blocks[1].attn.importance().topk(2, largest=False).indices.tolist()
    ids = (torch.randint(0, 16, (8, 1)) + 3 * torch.arange(13)) % 16
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
