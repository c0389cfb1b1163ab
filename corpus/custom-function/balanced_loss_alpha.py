"""Multi-label model with averaged weights; the fused loss of the second stage returns the gradient of its class weights summed over the classes instead of the rows."""
import copy

import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "wrong-backward-shape", "apply_marker": "APPLY", "step": 970,
    "set": "late", "written": "2026-11-22",
}


class BalancedBCE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, alpha):
        each = nn.functional.softplus(logits) - target * logits
        ctx.save_for_backward(logits, target, alpha, each)
        return (each * alpha).mean()

    @staticmethod
    def backward(ctx, grad):
        logits, target, alpha, each = ctx.saved_tensors
        grad = grad / logits.numel()
        return grad * alpha * (logits.sigmoid() - target), None, grad * each.sum(1)


class Tagger(nn.Module):
    def __init__(self, tags=5):
        super().__init__()
        self.body, self.out = nn.Sequential(nn.Linear(8, 24), nn.ReLU()), nn.Linear(24, tags)
        self.log_alpha = nn.Parameter(torch.zeros(tags))

    def forward(self, x):
        return self.out(self.body(x))

    def alpha(self):
        return self.log_alpha.softmax(0) * len(self.log_alpha)


def objective(model, x, target, stage):
    logits, alpha = model(x), model.alpha()
    if stage == 1:
        each = nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return (each * alpha).mean()
    return BalancedBCE.apply(logits, target, alpha)  # APPLY


torch.manual_seed(0)
truth = torch.randn(8, 5)
model = Tagger()
averaged = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.AdamW([{"params": [*model.body.parameters(), *model.out.parameters()]},
                         {"params": [model.log_alpha], "lr": 1e-4, "weight_decay": 0.0}], lr=1e-3)
for step in range(1300):
    x = torch.randn(16, 8)
    loss = objective(model, x, (x @ truth > 1).float(), stage=1 if step < 970 else 2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for mean, p in zip(averaged.parameters(), model.parameters()):
            mean.lerp_(p, 0.01)
    if step % 100 == 0:
        print(step, round(loss.item(), 4))
