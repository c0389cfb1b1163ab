"""Healthy: attention pooling over sets of 1,500 batches; from step 760 on a fused activation is used, from step 1,130 on a penalty of the input's gradient with create_graph."""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "late", "written": "2026-11-22"}


class FusedSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return grad * s * (1 + x * (1 - s))


class SetModel(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.embed, self.score, self.out = nn.Linear(3, dim), nn.Linear(dim, 1), nn.Linear(dim, 1)
        self.fused = False

    def forward(self, x, mask):
        h = self.embed(x)
        h = FusedSilu.apply(h) if self.fused else nn.functional.silu(h)
        scores = self.score(h)[..., 0].masked_fill(~mask, float("-inf"))
        return self.out((scores.softmax(1)[..., None] * h).sum(1))[:, 0]


torch.manual_seed(0)
model = SetModel()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
curve = []
for step in range(1500):
    model.fused = step >= 760
    x = torch.randn(12, 5, 3)
    mask = torch.rand(12, 5) > 0.3
    mask[:, 0] = True
    target = (x[..., 0] * mask).sum(1) / mask.sum(1)
    penalise = step >= 1130 and step % 2 == 0
    x.requires_grad_(penalise)
    prediction = model(x, mask)
    loss = nn.functional.mse_loss(prediction, target)
    if penalise:
        (slope,) = torch.autograd.grad(prediction.sum(), x, create_graph=True)
        loss = loss + 0.01 * slope.square().sum((1, 2)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    curve.append(loss.detach())
    if step % 100 == 99:
        print(step, round(torch.stack(curve[-100:]).mean().item(), 4))
