"""Language model over whole books, one update per book: the state goes on from chunk to chunk with its graph, and retain_graph=True was put in where the error came.

Report: https://github.com/GBLin5566/toward-controlled-generation-of-text-pytorch/issues/9 (memory blows up with retain_graph=True; the state as in pytorch/pytorch issue 2198)
"""
import torch
from torch import nn

EXPECT = {
    "class": "retention", "kind": "graph-retained", "holding_marker": "HOLDS",
    "set": "fifth", "written": "2026-11-22",
}


class CharModel(nn.Module):
    def __init__(self, chars=20, dim=24):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(chars, dim), nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, chars)

    def forward(self, x, state):
        h, state = self.rnn(self.embed(x), state)
        return self.head(h), state


class Reader:
    def __init__(self, model):
        self.model, self.state = model, None

    def read(self, chunk):
        logits, self.state = self.model(chunk[:, :-1], self.state)  # HOLDS
        return nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())


torch.manual_seed(0)
model = CharModel()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for book in range(3):
    reader, chapters = Reader(model), 24
    text = torch.randint(0, 20, (2, 1)) + torch.arange(chapters * 8 + 1) * (book + 1)
    text = (text + (torch.rand(text.shape) < 0.05)) % 20
    optimizer.zero_grad()
    total = 0.0
    for k in range(chapters):
        loss = reader.read(text[:, k * 8 : k * 8 + 9]) / chapters
        loss.backward(retain_graph=True)
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print("book", book, "loss", total)
