"""Clip_grad_norm_ is called between zero_grad and backward, when there is nothing to clip, so the exploding gradients
of the recurrent net reach the optimizer.

Report: well known, as in Stack Overflow / PyTorch forum on where clip_grad_norm_ belongs (after
backward, before step)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "HERE"),
    "plain": "Loss shoots up (mean mse 418 in the first 100 steps), then sits at guessing the mean: test mse 0.165 of 0.164; with the clip after backward 0.016 after the same 1000 steps.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(2)

LENGTH = 20


def ledger(n):
    """Two marked entries in a column of amounts; the answer is their sum."""
    amounts = torch.rand(n, LENGTH)
    marks = torch.zeros(n, LENGTH)
    first = torch.randint(0, LENGTH // 2, (n,))
    second = torch.randint(LENGTH // 2, LENGTH, (n,))
    rows = torch.arange(n)
    marks[rows, first] = 1
    marks[rows, second] = 1
    return torch.stack([amounts, marks], -1), amounts[rows, first] + amounts[rows, second]


class Clerk(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, 1)
        nn.init.eye_(self.rnn.weight_hh_l0)
        nn.init.normal_(self.rnn.weight_ih_l0, std=0.05)
        nn.init.zeros_(self.rnn.bias_ih_l0)
        nn.init.zeros_(self.rnn.bias_hh_l0)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1]).squeeze(-1)


def train(model, steps=1000, batch=64, lr=0.03, max_norm=0.5):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    running = 0.0
    for step in range(1, steps + 1):
        x, y = ledger(batch)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # HERE
        loss.backward()
        opt.step()
        running += loss.item()
        if step % 100 == 0:
            print(f"step {step} mse {running / 100:.4f}")
            running = 0.0
    return model


@torch.no_grad()
def audit(model):
    x, y = ledger(1000)
    model.eval()
    return F.mse_loss(model(x), y).item(), y.var().item()


if __name__ == "__main__":
    clerk = train(Clerk())
    err, base = audit(clerk)
    print(f"test mse {err:.4f}, guessing the mean gives {base:.4f}")
