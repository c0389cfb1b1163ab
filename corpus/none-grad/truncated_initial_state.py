"""RNN unrolled by hand with a learned first state: when sequences become long, the state is detached on the way, and the first state gets no gradient."""
import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "parameters": ["first"], "step": 880,
    "set": "late", "written": "2026-11-22",
}


class Tracker(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(hidden))
        self.inputs, self.recurrent = nn.Linear(2, hidden), nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, sequence, window):
        h = self.first.expand(sequence.shape[1], -1)
        for t, x in enumerate(sequence):
            if t and t % window == 0:
                h = h.detach()  # CUT
            h = torch.tanh(self.inputs(x) + self.recurrent(h))
        return self.out(h)[:, 0]


def sample(length, batch=16):
    sequence = torch.randn(length, batch, 2)
    decay = 0.6 ** torch.arange(length - 1, -1, -1.0)
    return sequence, (decay[:, None] * sequence[..., 0]).sum(0) + 0.5


torch.manual_seed(0)
model = Tracker()
opt = torch.optim.Adam(model.parameters(), 2e-3)
schedule = torch.optim.lr_scheduler.StepLR(opt, 400, gamma=0.7)
for step in range(1100):
    length = 3 + step // 220  # a curriculum
    sequence, target = sample(length)
    loss = nn.functional.mse_loss(model(sequence, window=6), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    schedule.step()
    if step % 110 == 0:
        print(step, length, round(loss.item(), 4), round(model.first.norm().item(), 4))
