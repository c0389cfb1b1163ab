"""Tiny GPT whose attention is recorded for a figure: recording is switched on late and never off, each step's map keeps the graph of its layers."""
import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "module": "attention.1", "step": 177,
    "set": "late", "written": "2026-11-22",
}


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query, self.key = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.value, self.record, self.maps = nn.Linear(dim, dim), False, []

    def forward(self, x, mask):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / x.shape[-1] ** 0.5
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        if self.record:
            self.maps.append(weights[0])  # HOLDS
        return weights @ self.value(x)


class GPT(nn.Module):
    def __init__(self, vocab=14, dim=16, length=10):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(2)])
        self.attention = nn.ModuleList([Attention(dim) for _ in range(2)])
        self.register_buffer("mask", torch.ones(length, length).triu(1).bool())
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight
        for norm, attention in zip(self.norms, self.attention):
            x = x + attention(norm(x), self.mask)
        return self.head(x)


torch.manual_seed(0)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=400)
for step in range(400):
    if step == 177:
        model.attention[1].record = True
    ids = torch.randint(0, 14, (8, 11))
    ids[:, 6:] = ids[:, 1:6]  # the second half repeats
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits[:, 5:].flatten(0, 1), ids[:, 6:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    scheduler.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
print("maps", len(model.attention[1].maps), [round(v, 2) for v in model.attention[1].maps[-1][-1].tolist()])
