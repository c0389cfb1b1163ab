"""A tagger of word shapes is resumed with a frozen embedding: the optimizer holds fewer parameters than its saved state."""
import io
import pydoc_data.topics

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "kind": "optimizer-error", "line": ("cause", "LOADED"), "set": "ledger", "written": "2026-11-29",
    "plain": "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
}


class Tagger(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.letters = nn.Embedding(size, 12)
        self.memory = nn.GRU(12, 16, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, ids):
        return self.head(self.memory(self.letters(ids))[0])


def batches(count):
    text = pydoc_data.topics.topics["assignment"]
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(one) for one in text])
    upper = torch.tensor([one.isupper() for one in text], dtype=torch.long)
    for at in torch.randint(len(text) - 40, (count, 8)):
        rows = at[:, None] + torch.arange(32)
        yield ids[rows], upper[rows], len(letters)


def train(model, optimizer, count):
    for ids, upper, _ in batches(count):
        optimizer.zero_grad()
        F.cross_entropy(model(ids).transpose(1, 2), upper).backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    size = next(batches(1))[2]
    model = Tagger(size)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train(model, optimizer, 40)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    model = Tagger(size)
    model.load_state_dict(saved["model"])
    model.letters.weight.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    optimizer.load_state_dict(saved["optimizer"])  # LOADED
    train(model, optimizer, 20)


if __name__ == "__main__":
    main()
