"""Hand written LSTM cell reading digits row by row; recurrent dropout after a warm-up."""
import time
import torch
from torch import nn
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "CULPRIT", "step": 108,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(3)
d = load_digits()
SEQ = torch.tensor(d.images, dtype=torch.float32) / 16.0
LAB = torch.tensor(d.target)


class Cell(nn.Module):
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.x2g = nn.Linear(n_in, 4 * n_hid)
        self.h2g = nn.Linear(n_hid, 4 * n_hid, bias=False)
        self.drop_rate = 0.0

    def forward(self, x, h, c):
        i, f, g, o = (self.x2g(x) + self.h2g(h)).chunk(4, dim=1)
        i, f, o = torch.sigmoid(i), torch.sigmoid(f + 1.0), torch.sigmoid(o)
        cand = torch.tanh(g)
        if self.drop_rate > 0:
            keep = (torch.rand_like(cand) > self.drop_rate).float()
            cand.mul_(keep / (1 - self.drop_rate))  # CULPRIT
        c = f * c + i * cand
        h = o * torch.tanh(c)
        return h, c


class RowReader(nn.Module):
    def __init__(self, n_hid=192):
        super().__init__()
        self.n_hid = n_hid
        self.cell = Cell(8, n_hid)
        self.out = nn.Linear(n_hid, 10)

    def forward(self, seq):
        h = seq.new_zeros(seq.shape[0], self.n_hid)
        c = seq.new_zeros(seq.shape[0], self.n_hid)
        for t in range(seq.shape[1]):
            h, c = self.cell(seq[:, t], h, c)
        return self.out(h)


def batches(bs):
    perm = torch.randperm(len(SEQ))
    for s in range(0, len(SEQ) - bs + 1, bs):
        yield SEQ[perm[s:s + bs]], LAB[perm[s:s + bs]]


model = RowReader()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
lossf = nn.CrossEntropyLoss()
step, t0 = 0, time.time()
WARMUP_EPOCHS = 6          # 18 batches per epoch
for epoch in range(22):
    if epoch == WARMUP_EPOCHS:
        model.cell.drop_rate = 0.15
    for xb, yb in batches(96):
        optimizer.zero_grad()
        loss = lossf(model(xb), yb)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        step += 1
    print(f"epoch {epoch} step {step} loss {loss.item():.4f} {(time.time() - t0) / step * 1e3:.1f} ms/step")
