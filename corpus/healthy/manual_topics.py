"""Healthy: real padding with padding_idx, and an ordinary GroupNorm."""
import re

import torch
import torch.nn.functional as F
from pydoc_data.topics import topics
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


PAD, UNK, GROUPS = 0, 1, 8


def sentences():
    text = " ".join(topics[k] for k in sorted(topics))
    for s in re.split(r"[.!?]\s", text):
        words = re.findall(r"[a-z]+", s.lower())
        if 4 <= len(words) <= 24:
            yield words


def encode(vocab_size=600, length=24):
    rows = list(sentences())
    count = {}
    for r in rows:
        for w in r:
            count[w] = count.get(w, 0) + 1
    ranked = sorted(count, key=lambda w: (-count[w], w))[:vocab_size - 2]
    index = {w: i + 2 for i, w in enumerate(ranked)}
    ids = torch.full((len(rows), length), PAD)
    for i, r in enumerate(rows):
        ids[i, :len(r)] = torch.tensor([index.get(w, UNK) for w in r])
    return ids, index


class Reader(nn.Module):
    def __init__(self, vocab, dim=48):
        super().__init__()
        self.words = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.norm = nn.GroupNorm(GROUPS, dim)
        self.out = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, ids):
        mask = (ids != PAD).float()[..., None]
        v = (self.words(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.out(self.norm(v))


def main():
    torch.manual_seed(64)
    ids, index = encode()
    marker = {index[w] for w in ("the", "a", "an") if w in index}
    hits = torch.stack([(ids == m).sum(1) for m in marker]).sum(0)
    length = (ids != PAD).sum(1)
    label = (hits.float() / length > 0.1).long()
    order = torch.randperm(len(ids))
    train, test = order[:-400], order[-400:]
    model = Reader(600)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    running = 0.0
    for step in range(500):
        pick = train[torch.randint(0, len(train), (64,))]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[pick]), label[pick])
        loss.backward()
        optimizer.step()
        running += loss.item()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} loss {running / 100:.4f}")
            running = 0.0
    with torch.no_grad():
        acc = (model(ids[test]).argmax(1) == label[test]).float().mean().item()
    print(f"sentences {len(ids)} majority {max(label.float().mean().item(), 1 - label.float().mean().item()):.3f} final test accuracy {acc:.4f}")


if __name__ == "__main__":
    main()
