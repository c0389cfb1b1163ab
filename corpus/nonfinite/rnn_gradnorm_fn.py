"""Semi-labelled Elman RNN on digit rows with a gradient equalising identity layer."""
import time
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-custom-function", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 110,
    "set": "late_longer", "written": "2026-11-25",
}

torch.manual_seed(16)


class EqualiseGrad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode):
        ctx.mode = mode
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        if ctx.mode == "off":
            return g, None
        size = g.norm(dim=1, keepdim=True)
        if ctx.mode == "per_batch":
            return g / size.mean() / g.shape[0], None
        return g / size / g.shape[0], None


class Equaliser(nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = "off"

    def forward(self, x):
        return EqualiseGrad.apply(x, self.mode)  # CULPRIT


class RowRNN(nn.Module):
    def __init__(self, hid=384):
        super().__init__()
        self.inp = nn.Linear(8, hid)
        self.rec = nn.Linear(hid, hid)
        self.equalise = Equaliser()
        self.head = nn.Linear(hid, 10)

    def forward(self, rows):
        h = torch.zeros(rows.shape[0], self.rec.out_features)
        for t in range(rows.shape[1]):
            h = torch.tanh(self.inp(rows[:, t]) + self.rec(h))
        return self.head(self.equalise(h))


d = load_digits()
ROWS = torch.tensor(d.images, dtype=torch.float32) / 16.0
TARGET = torch.tensor(d.target)
TARGET[::10] = -100                           # unlabelled part

CURRICULUM = {0: "off", 60: "per_batch", 110: "per_row"}
model = RowRNN()
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
t0 = time.time()
for step in range(400):
    model.equalise.mode = CURRICULUM.get(step, model.equalise.mode)
    i = torch.randint(0, len(ROWS), (128,))
    i[0] = 10 * int(torch.randint(0, 179, ()))
    loss = F.cross_entropy(model(ROWS[i]), TARGET[i], ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        print(f"{step} {loss.item():.4f} {(time.time() - t0) / (step + 1) * 1e3:.1f} ms/step")
