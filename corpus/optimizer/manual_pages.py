"""Which section of the language manual does a passage come from? Long pages are cut into overlapping windows.

Report: https://github.com/huggingface/transformers/issues/132
"""
import re

import torch
from pydoc_data.topics import topics
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "kind": "learning-rate-negative",
    "line": ("cause", "HERE"),
    "late": True,
    "plain": "the loss falls well and then rises without end in the last epochs, accuracy falls back",
    "set": "twentysixth",
    "written": "2026-11-29",
}

WINDOW, STRIDE, BATCH, EPOCHS, WORDS = 60, 40, 32, 14, 1500
SECTIONS = ["class", "function", "string", "import", "exception", "sequence"]


def section_of(text):
    counts = [len(re.findall(name, text)) / (1 + index % 2) for index, name in enumerate(SECTIONS)]
    return max(range(len(SECTIONS)), key=counts.__getitem__)


def read_pages():
    pages = []
    for name in sorted(topics):
        words = re.findall(r"[a-z]+", topics[name].lower())
        for start in range(0, len(words) - 40, 70):
            piece = words[start:start + 70]
            pages.append((piece, section_of(" ".join(piece))))
    return pages


class Windows(Dataset):
    def __init__(self, pages, index):
        self.rows = []
        for words, label in pages:
            for start in range(0, max(1, len(words) - WINDOW + STRIDE), STRIDE):
                piece = [index.get(word, 1) for word in words[start:start + WINDOW]]
                self.rows.append((torch.tensor(piece + [0] * (WINDOW - len(piece))), label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, position):
        return self.rows[position]


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width, padding_idx=0)
        self.mix = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, len(SECTIONS)))

    def forward(self, tokens):
        known = (tokens != 0).unsqueeze(-1)
        mean = (self.embed(tokens) * known).sum(1) / known.sum(1).clamp(min=1)
        return self.mix(mean)


def linear_schedule(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return (total - step) / (total - warmup)  # HERE

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def main():
    torch.manual_seed(14)
    pages = read_pages()
    order = torch.randperm(len(pages), generator=torch.Generator().manual_seed(2)).tolist()
    train_pages = [pages[i] for i in order[: int(0.8 * len(pages))]]
    check_pages = [pages[i] for i in order[int(0.8 * len(pages)):]]
    counts = {}
    for words, _ in train_pages:
        for word in words:
            counts[word] = counts.get(word, 0) + 1
    index = {word: i + 2 for i, word in enumerate(sorted(counts, key=counts.get, reverse=True)[:WORDS - 2])}
    train, check = Windows(train_pages, index), Windows(check_pages, index)
    loader = DataLoader(train, batch_size=BATCH, shuffle=True)
    check_loader = DataLoader(check, batch_size=256)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    total = EPOCHS * len(train_pages) // BATCH  # HERE
    schedule = linear_schedule(optimizer, 60, total)
    for epoch in range(EPOCHS):
        model.train()
        summed = 0.0
        for tokens, label in loader:
            loss = F.cross_entropy(model(tokens), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            summed += loss.item()
        model.eval()
        with torch.no_grad():
            hits = torch.cat([model(tokens).argmax(1) == label for tokens, label in check_loader]).float().mean().item()
        print(f"epoch {epoch:2d}  loss {summed / len(loader):9.4f}  validation accuracy {hits:.3f}")
    print(f"pages {len(train_pages)}  windows {len(train)}")


if __name__ == "__main__":
    main()
