"""Own function for a smooth maximum over the valid part of a row: its backward cannot take a row with one element, and a batch of such comes late."""
import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "backward-error", "source_marker": "APPLIED", "apply_marker": "APPLIED", "step": 611,
    "set": "late_again", "written": "2026-11-22",
}


class SmoothMax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        weights = x.softmax(1)
        ctx.save_for_backward(x, weights)
        return (weights * x).sum(1)

    @staticmethod
    def backward(ctx, grad):
        x, weights = ctx.saved_tensors
        best, second = x.topk(2, dim=1).values.unbind(1)
        return grad[:, None] * weights * (1 + 0.1 * torch.sigmoid(best - second))[:, None]


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 10), nn.Linear(10, 1)

    def forward(self, x):
        scores = self.head(torch.relu(self.body(x)))[..., 0]
        return SmoothMax.apply(scores)  # APPLIED


torch.manual_seed(0)
model = Scorer()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(640):
    length = 1 if step == 611 else 3 + step % 3
    x = torch.randn(8, length, 6)
    loss = nn.functional.mse_loss(model(x), x[:, 0].sum(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
