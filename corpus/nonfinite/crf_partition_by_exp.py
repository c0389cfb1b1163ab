"""BiLSTM-CRF whose partition function adds up probabilities instead of their logarithms: sentences of twenty words are fine, the first long one overflows.

Report: https://github.com/candle-org/MindAct/issues/171 (NaN loss of a BiLSTM-CRF, mended by logsumexp; the same in mlberkeley/scae-pytorch pull 4)
"""
import torch
from torch import nn

EXPECT = {
    "class": "overflow", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "module": "crf", "step": 140,
    "set": "fifth", "written": "2026-11-22",
}


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(0.1 * torch.randn(tags, tags))

    def partition(self, emissions):
        alpha = emissions[:, 0].exp()
        for t in range(1, emissions.shape[1]):
            alpha = (alpha @ self.transitions.exp()) * emissions[:, t].exp()  # CULPRIT
        return alpha.sum(1).log()

    def score(self, emissions, tags):
        total = emissions.gather(2, tags[..., None]).squeeze(2).sum(1)
        return total + self.transitions[tags[:, :-1], tags[:, 1:]].sum(1)

    def forward(self, emissions, tags):
        return (self.partition(emissions) - self.score(emissions, tags)).mean()


class Tagger(nn.Module):
    def __init__(self, words=40, tags=5, dim=16):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.emit, self.crf = nn.Linear(2 * dim, tags), CRF(tags)

    def forward(self, words, tags):
        h, _ = self.lstm(self.embed(words))
        return self.crf(self.emit(h), tags)


torch.manual_seed(0)
tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters(), 5e-3, weight_decay=1e-4)
for step in range(170):
    length = int(torch.randint(6, 16, ()))
    if step == 140:
        length = 90  # a sentence that nobody split
    words = torch.randint(0, 40, (8, length))
    loss = tagger(words, (words + words.roll(1, 1)) % 5)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(tagger.parameters(), 5.0)
    optimizer.step()
    if step % 20 == 0 or not loss.isfinite():
        print(step, length, loss.item())
