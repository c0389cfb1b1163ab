"""Embeddings of padding are all zero; x / x.norm() is 0/0 in the forward; the row is then masked out of the loss."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-forward", "line": ("cause", "CULPRIT"), "module": ""}


class Retriever(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.proj = nn.Embedding(30, 8, padding_idx=0), nn.Linear(8, 8, bias=False)

    def encode(self, tokens):
        h = self.proj(self.embed(tokens))
        return h / h.norm(dim=-1, keepdim=True)  # CULPRIT

    def forward(self, query, doc):
        q, d = self.encode(query), self.encode(doc)
        scores = q @ d.transpose(1, 2)
        keep = (query != 0)[:, :, None] & (doc != 0)[:, None]
        return torch.where(keep, scores, torch.zeros(())).sum((1, 2)) / keep.sum((1, 2))


torch.manual_seed(0)
model = Retriever()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    query, doc = torch.randint(1, 30, (4, 5)), torch.randint(1, 30, (4, 7))
    query[:, 4] = 0
    loss = (1 - model(query, doc)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print({"reproduced": bool(model.proj.weight.isnan().any())})
