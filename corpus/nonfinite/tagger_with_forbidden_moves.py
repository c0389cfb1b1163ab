"""Neural HMM tagger in log space: moves that the grammar forbids are minus infinity, which is meant; a tag that cannot be reached at all at some place is a logsumexp over nothing but minus infinity, whose gradient is NaN.

Report: https://github.com/pytorch/pytorch/issues/49724 (logsumexp of all -inf has the right value and a gradient of NaN; forward algorithms of a class)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 45,
    "set": "eighth", "written": "2026-11-22",
}
NEG = float("-inf")
TAGS, WORDS = 5, 24


class Grammar:
    """Tag t may be followed by itself and by t + 1 (mod TAGS); the strict one starts with tag 0."""

    def __init__(self):
        step = (torch.arange(TAGS) - torch.arange(TAGS)[:, None]) % TAGS
        self.moves = torch.zeros(TAGS, TAGS).masked_fill(step > 1, NEG)
        self.strict_start = torch.full((TAGS,), NEG)
        self.strict_start[0] = 0.0
        self.loose_start = torch.zeros(TAGS)


class NeuralHMM(nn.Module):
    def __init__(self, grammar, dim=16):
        super().__init__()
        self.grammar = grammar
        self.tag = nn.Embedding(TAGS, dim)
        self.word_scores, self.move_scores = nn.Linear(dim, WORDS), nn.Linear(dim, TAGS)

    def tables(self, strict):
        emit = self.word_scores(self.tag.weight).log_softmax(1)
        move = (self.move_scores(self.tag.weight) + self.grammar.moves).log_softmax(1)
        return emit, move, self.grammar.strict_start if strict else self.grammar.loose_start

    def log_likelihood(self, words, strict):
        emit, move, start = self.tables(strict)
        alpha = start.log_softmax(0) + emit[:, words[:, 0]].T
        for t in range(1, words.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + move, 1)  # CULPRIT
            alpha = alpha + emit[:, words[:, t]].T
        return torch.logsumexp(alpha, 1)


def sentences(n, length=7, strict=False):
    tag = torch.zeros(n, dtype=torch.long) if strict else torch.randint(0, TAGS, (n,))
    words = []
    for _ in range(length):
        words.append((tag * 5 + torch.randint(0, 5, (n,))).clamp(max=WORDS - 1))
        tag = (tag + torch.randint(0, 2, (n,))) % TAGS
    return torch.stack(words, 1)


torch.manual_seed(0)
model = NeuralHMM(Grammar())
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
for step in range(90):
    strict = step >= 45  # whole sentences from here on, before that pieces of them
    loss = -model.log_likelihood(sentences(16, strict=strict), strict).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item())
