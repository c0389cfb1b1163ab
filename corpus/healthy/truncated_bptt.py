"""A character model with truncated backpropagation: the state is cut off from its past at each window, and an optimizer step
comes only after every fourth window, with zero_grad in between left out. It is gradient accumulation over four windows with
the loss divided by four and one clipping before the step; the loss goes down as it should."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "healthy: truncated BPTT with accumulation",
    "kind": "none",
    "what": "The state is detached on purpose between windows and gradients accumulate on purpose over four windows (scaled by 1/4, cleared after each step).",
    "symptom": "loss goes down; weights move every fourth window",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(29)
torch.set_num_threads(1)
WINDOW, STREAMS, ACCUMULATE = 12, 16, 4
PHRASES = ["the cat sat on the mat. ", "a dog ran to the red barn. ", "no bird sang at dawn. "]


class CharModel(nn.Module):
    def __init__(self, vocab, dim=16, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, ids, state=None):
        h, state = self.lstm(self.embed(ids), state)
        return self.out(h), state


def build_streams(length):
    """STREAMS parallel texts, each a random order of the phrases."""
    letters = sorted(set("".join(PHRASES)))
    index = {c: i for i, c in enumerate(letters)}
    rows = []
    for _ in range(STREAMS):
        text = ""
        while len(text) < length + 1:
            text += PHRASES[int(torch.randint(0, len(PHRASES), (1,)))]
        rows.append([index[c] for c in text[:length + 1]])
    return torch.tensor(rows), letters


def detach(state):
    return tuple(s.detach() for s in state)


text, letters = build_streams(WINDOW * 240)
model = CharModel(len(letters))
optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
optimizer.zero_grad()
state, losses, updates = None, [], 0

for window in range(240):
    sl = text[:, window * WINDOW:(window + 1) * WINDOW + 1]
    logits, state = model(sl[:, :-1], state)
    loss = F.cross_entropy(logits.flatten(0, 1), sl[:, 1:].flatten())
    (loss / ACCUMULATE).backward()
    state = detach(state)
    losses.append(loss.item())
    if (window + 1) % ACCUMULATE == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        updates += 1
    if window % 40 == 39:
        print(f"window {window + 1:3d}  updates {updates:2d}  loss {sum(losses[-40:]) / 40:.4f}")
