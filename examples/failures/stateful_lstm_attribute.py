"""Stateful LSTM keeps self.hidden = (h, c) between batches."""

import torch
from torch import nn

EXPECT = {"kind": "second-backward", "line": ("reused", "REUSED"), "module": "lstm"}


class LanguageModel(nn.Module):
    def __init__(self, vocab=20, d=8):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(vocab, d), nn.LSTM(d, d, batch_first=True), nn.Linear(d, vocab)
        self.hidden = None

    def reset(self, batch):
        self.hidden = (torch.zeros(1, batch, 8), torch.zeros(1, batch, 8))

    def forward(self, tokens):
        h, self.hidden = self.lstm(self.embed(tokens), self.hidden)  # REUSED
        return self.out(h)


class Trainer:
    def __init__(self, model):
        self.model, self.opt = model, torch.optim.SGD(model.parameters(), lr=1.0)

    def fit(self, stream, bptt=5):
        self.model.reset(len(stream))
        for i in range(0, stream.shape[1] - bptt - 1, bptt):
            x, y = stream[:, i : i + bptt], stream[:, i + 1 : i + bptt + 1]
            loss = nn.functional.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()  # FREED
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.25)
            self.opt.step()


torch.manual_seed(0)
Trainer(LanguageModel()).fit(torch.randint(0, 20, (3, 21)))
