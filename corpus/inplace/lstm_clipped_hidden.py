"""LSTM unrolled by hand with a bound for its state: the first time that a unit passes it, the state is clamped in place after the read-out has kept it."""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 366,
    "set": "late", "written": "2026-11-22",
}


class Cell(nn.Module):
    def __init__(self, inputs, hidden, bound):
        super().__init__()
        self.inputs, self.hidden = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.bound = bound

    def forward(self, x, h, c):
        i, f, o, g = (self.inputs(x) + self.hidden(h)).chunk(4, 1)
        c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = Cell(2, 12, 0.98), nn.Linear(12, 1)

    def forward(self, sequence):
        h = c = torch.zeros(sequence.shape[1], 12)
        outputs = []
        for x in sequence:
            h, c = self.cell(x, h, c)
            outputs.append(self.head(h))
            if h.abs().max() > self.cell.bound:
                h.clamp_(-self.cell.bound, self.cell.bound)  # MUTATES
        return torch.stack(outputs)


torch.manual_seed(0)
model = Model()
opt = torch.optim.Adam(model.parameters(), 2e-3)
for step in range(1200):
    sequence = torch.randn(6, 8, 2)
    target = sequence[..., :1].cumsum(0)
    loss = nn.functional.mse_loss(model(sequence), target)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
