"""Locker codes that a GRU cell has to keep through a stretch of noise. The hidden state is detached at each step of time,
so the cell never learns to keep what it saw at the start."""
import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "class": "state detached at each step of time",
    "kind": "detached-in-time",
    "line": ["cut", "HERE"],
    "module": "cell",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


class CodeKeeper(nn.Module):
    """Reads a locker code, then a stretch of noise symbols, then must repeat the code."""

    def __init__(self, vocab, emb=24, hidden=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.cell = nn.GRUCell(emb, hidden)
        self.head = nn.Linear(hidden, vocab)
        self.hidden = hidden

    def forward(self, seq):
        h = torch.zeros(len(seq), self.hidden)
        outs = []
        for t in range(seq.shape[1]):
            h = self.cell(self.emb(seq[:, t]), h.detach())  # HERE
            outs.append(self.head(h))
        return torch.stack(outs, dim=1)


class Lockers:
    def __init__(self, digits=6, code_len=2, wait=8, seed=0):
        self.digits, self.code_len, self.wait = digits, code_len, wait
        self.go = digits + 3
        self.vocab = digits + 4
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        code = torch.randint(0, self.digits, (n, self.code_len), generator=self.gen)
        noise = torch.randint(self.digits, self.digits + 3, (n, self.wait), generator=self.gen)
        ask = torch.full((n, self.code_len), self.go)
        return torch.cat([code, noise, ask], dim=1), code


def evaluate(model, task, n=500):
    model.eval()
    with torch.no_grad():
        seq, code = task.batch(n)
        pred = model(seq)[:, -task.code_len:].argmax(-1)
    model.train()
    return (pred == code).float().mean().item()


def main():
    torch.manual_seed(12)
    task, held = Lockers(seed=1), Lockers(seed=77)
    model = CodeKeeper(task.vocab)
    opt = torch.optim.Adam(model.parameters(), lr=6e-3)

    for step in range(450):
        seq, code = task.batch(64)
        logits = model(seq)[:, -task.code_len:]
        loss = F.cross_entropy(logits.reshape(-1, task.vocab), code.reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 100 == 0 or step == 449:
            print(f"step {step:4d}  loss {loss.item():.3f}  digits right {evaluate(model, held):.3f}")


if __name__ == "__main__":
    main()
