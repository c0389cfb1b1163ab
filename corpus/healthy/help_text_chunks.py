"""Character model on the Python help topics with truncated backpropagation and local attention.

Story: the GRU state goes from chunk to chunk and is detached, scores of the attention are
filled with -inf above the diagonal, a batch without any vowel is skipped, the norm of the
gradient is clipped (it is above the limit nearly always), and the losses of the last steps are kept
in a deque as floats.  People ask about each of these (for example the thread on implementing
truncated BPTT at discuss.pytorch.org/t/15500); all of them are fine here.
"""
import math
from collections import deque
from pydoc_data import topics

import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {"class": "x", "kind": "none", "plain": {"outcome": "silent"}, "set": "fourteenth", "written": "2026-11-26"}

LANES, CHUNK, DIM, CLIP = 16, 24, 64, 0.25
VOWELS = torch.tensor([ord(c) for c in "aeiou"])


class LocalAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.register_buffer("future", torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1))

    def forward(self, h):
        scores = self.q(h) @ self.k(h).transpose(1, 2) / math.sqrt(h.shape[-1])
        scores.masked_fill_(self.future, float("-inf"))
        return h + scores.softmax(-1) @ self.v(h)


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(128, DIM)
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.attend = LocalAttention(DIM)
        self.out = nn.Linear(DIM, 128, bias=False)
        self.out.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, ids, state):
        h, state = self.gru(self.embed(ids), state)
        return self.out(self.attend(h)), state


class Lanes:
    """LANES parallel reading positions in the text; restarts when the end is reached."""

    def __init__(self, limit=60_000):
        text = "\n".join(topics.topics[k] for k in sorted(topics.topics))[:limit]
        ids = torch.tensor(list(text.encode("ascii", "replace")))
        width = len(ids) // LANES
        self.grid = ids[: width * LANES].view(LANES, width)

    def __iter__(self):
        for lo in range(0, self.grid.shape[1] - CHUNK - 1, CHUNK):
            yield self.grid[:, lo:lo + CHUNK], self.grid[:, lo + 1:lo + CHUNK + 1]


def train(model, epochs=3):
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.999)
    recent, step = deque(maxlen=50), 0
    for epoch in range(epochs):
        state = None
        for ids, wanted in Lanes():
            if not torch.isin(ids, VOWELS).any():
                continue
            logits, state = model(ids, state)
            state = state.detach()
            loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
            recent.append(loss.item())
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {sum(recent) / len(recent):.3f} norm {norm:.2f}")


def main():
    torch.manual_seed(0)
    train(CharModel())


if __name__ == "__main__":
    main()
