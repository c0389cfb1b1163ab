"""Packed documents in bfloat16: document mask and padding mask are added, each the smallest finite number; the row that fills the last batch has minus infinity everywhere.

Report: https://github.com/NVIDIA-NeMo/Automodel/pull/2658 (also huggingface/transformers pull 17306)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader

EXPECT = {
    "class": "masked-softmax", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


def build_mask(documents, dtype):
    low = torch.finfo(dtype).min
    n = documents.shape[1]
    same = documents[:, :, None] == documents[:, None, :]
    allowed = same & (documents > 0)[:, :, None] & torch.ones(n, n, dtype=torch.bool).tril()
    document_plane = torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, low)
    padding_plane = torch.zeros(documents.shape, dtype=dtype).masked_fill(documents == 0, low)
    return document_plane + padding_plane[:, None, :]  # CULPRIT


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, mask):
        q, k, v = self.qkv(nn.functional.layer_norm(x, x.shape[-1:])).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        return x + self.out((scores + mask).softmax(-1) @ v)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block, self.head = nn.Embedding(30, 16), Block(16), nn.Linear(16, 30)

    def forward(self, ids, documents):
        x = self.embed(ids)
        return self.head(self.block(x, build_mask(documents, x.dtype)))


def collate(rows, batch_size=4, width=10):
    ids, documents = torch.zeros(batch_size, width, dtype=torch.long), torch.zeros(batch_size, width, dtype=torch.long)
    for i, row in enumerate(rows):  # every batch has the same shape
        ids[i, : len(row)] = row
        documents[i, : len(row)] = 1 + (torch.arange(len(row)) > 4).long()
    return ids, documents


g = torch.Generator().manual_seed(4)
rows = [torch.randint(1, 30, (int(torch.randint(7, 11, (1,), generator=g)),), generator=g) for _ in range(163)]
torch.manual_seed(3)
model = Decoder().to(torch.bfloat16)
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step, (ids, documents) in enumerate(DataLoader(rows, batch_size=4, collate_fn=collate)):
    logits = model(ids, documents)[:, :-1].float()
    labels = ids[:, 1:].masked_fill(documents[:, 1:] == 0, -100)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", loss.item(), model.embed.weight.isnan().any().item())
