"""A value head keeps a running mean and spread of the returns, and divides by them. The last batch of each epoch has a
single episode, whose standard deviation is NaN. The running spread takes it; it is used for reporting only, so that no loss
and no gradient ever meets it."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "NaN in a buffer of the script's own",
    "kind": "nonfinite-buffer",
    "line": ["cause", "cause"],
    "what": "The standard deviation of a batch of one is NaN, and the running spread keeps it.",
    "symptom": "no error; the reported spread is NaN",
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(9)
torch.set_num_threads(1)


class ValueHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
        self.register_buffer("center", torch.zeros(1))
        self.register_buffer("spread", torch.ones(1))

    def track(self, returns):
        self.center.mul_(0.9).add_(returns.mean(), alpha=0.1)
        self.spread.mul_(0.9).add_(returns.std(), alpha=0.1)  # <-- cause

    def forward(self, x):
        return self.net(x).squeeze(1)


states = torch.randn(97, 5)
returns = states.sum(1) + 0.1 * torch.randn(97)
head = ValueHead()
optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
for epoch in range(12):
    order = torch.randperm(len(states))
    for begin in range(0, len(states), 16):
        chosen = order[begin:begin + 16]
        loss = (head(states[chosen]) - returns[chosen]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        head.track(returns[chosen])
    if epoch % 4 == 3:
        print(f"epoch {epoch}  loss {loss.item():.3f}  center {head.center.item():.2f}  spread {head.spread.item():.2f}")
