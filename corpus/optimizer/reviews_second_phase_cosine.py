"""A text model that is trained at a constant rate first, then fine-tuned with a cosine schedule that is made for all
batches of the second phase and stepped after each of its epochs.
"""

import torch
from torch import nn

EXPECT = {
    "class": "schedule over batches stepped per epoch",
    "kind": "schedule-too-slow",
    "line": ["cause", "cause"],
    "what": "T_max counts the batches of the second phase, and scheduler.step() is called once per epoch.",
    "symptom": "no error; the rate of the second phase does not fall",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(5)
WORDS, BATCH = 60, 32


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 16)
        self.out = nn.Linear(16, 2)

    def forward(self, ids):
        return self.out(self.words(ids))


def reviews(count):
    ids = torch.randint(WORDS, (count, 12))
    return ids, ((ids < WORDS // 2).sum(1) > 6).long()


def epoch(model, optimizer, batches):
    total = 0.0
    for ids, label in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids), label)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


model = Sentiment()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
first = [reviews(BATCH) for _ in range(30)]
for number in range(3):
    print("first phase", number, epoch(model, optimizer, first))

second = [reviews(BATCH) for _ in range(25)]
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4 * len(second))  # <-- cause
for number in range(4):
    print("second phase", number, epoch(model, optimizer, second))
    scheduler.step()
