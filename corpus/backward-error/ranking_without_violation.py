"""Ranking loss as an own Function whose backward works in units of the largest violation: the first batch in which all pairs are in order leaves backward with an empty tensor."""
import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "backward-error", "apply_marker": "CULPRIT", "step": 1295,
    "set": "late", "written": "2026-11-22",
}


class Ranking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, better, worse, margin):
        violation = (margin - (better - worse)).clamp(min=0)
        ctx.save_for_backward(violation)
        return violation.square().mean()

    @staticmethod
    def backward(ctx, grad):
        (violation,) = ctx.saved_tensors
        largest = violation[violation > 0].max()
        slope = grad * (violation / largest) * (2 * largest / len(violation))
        return -slope, slope, None


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.item, self.user = nn.Linear(6, 12), nn.Embedding(20, 12)

    def forward(self, user, item):
        return (self.user(user) * self.item(item).tanh()).sum(1)


class Criterion(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, better, worse):
        return Ranking.apply(better, worse, self.margin)  # CULPRIT


torch.manual_seed(0)
model, criterion = Scorer(), Criterion(0.4)
taste = torch.randn(20, 6)
opt = torch.optim.Adagrad(model.parameters(), 5e-2)
for step in range(1500):
    user = torch.randint(0, 20, (10,))
    first, second = torch.randn(2, 10, 6)
    prefers = ((first - second) * taste[user]).sum(1, keepdim=True) > 0
    better, worse = torch.where(prefers, first, second), torch.where(prefers, second, first)
    loss = criterion(model(user, better), model(user, worse))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
