"""GRU language model, truncated BPTT; goes stateful after a stateless warm-up."""
import time
import torch
from torch import nn

EXPECT = {
    "class": "late-second", "kind": "second-backward", "bridge_marker": "CULPRIT", "step": 200,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(9)
VOCAB, B, T = 24, 32, 24


def make_corpus(n=60000):
    seq, a, b = [], 1, 2
    noise = torch.randint(0, 3, (n,)).tolist()
    for k in range(n):
        a, b = b, (a + b + (noise[k] == 0)) % VOCAB
        seq.append(a)
    return torch.tensor(seq)


class CharGRU(nn.Module):
    def __init__(self, emb=32, hid=192):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, emb)
        self.rnn = nn.GRU(emb, hid, batch_first=True)
        self.out = nn.Linear(hid, VOCAB)

    def forward(self, x, state=None):
        y, state = self.rnn(self.emb(x), state)  # CULPRIT
        return self.out(y), state


class Stream:
    def __init__(self, corpus):
        n = len(corpus) // B
        self.rows, self.pos = corpus[: n * B].view(B, n), 0

    def next(self):
        if self.pos + T + 1 > self.rows.shape[1]:
            self.pos = 0
        chunk = self.rows[:, self.pos:self.pos + T + 1]
        self.pos += T
        return chunk[:, :-1], chunk[:, 1:]


def main(steps=400, stateful_from=200):
    stream, model = Stream(make_corpus()), CharGRU()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    state = None
    t0 = time.time()
    for step in range(steps):
        x, y = stream.next()
        if step < stateful_from:
            state = None
        logits, state = model(x, state)
        loss = criterion(logits.reshape(-1, VOCAB), y.reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 50 == 49:
            print(f"{step} ppl {loss.exp().item():.3f} {(time.time() - t0) / (step + 1) * 1e3:.1f} ms/step")


main()
