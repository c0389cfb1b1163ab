"""Own depthwise convolution under mixed precision: forward is cast by autocast, backward runs outside of it and multiplies two types.

Report: https://github.com/gungui98/Pytorch-Depthwise-Conv3d/issues/3
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "backward-error", "apply_marker": "CULPRIT",
    "set": "second", "written": "2026-11-22",
}


class Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.flatten(0, 1).t() @ x.flatten(0, 1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.weight, self.out = nn.Linear(8, 8), nn.Parameter(torch.randn(8, 8) / 3), nn.Linear(8, 2)

    def forward(self, x):
        h = self.inner(x).relu()
        h = Mix.apply(h, self.weight)  # CULPRIT
        return self.out(h.mean(1))


torch.manual_seed(0)
net = Block()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for epoch in range(3):
    for batch in range(12):
        x, y = torch.randn(4, 5, 8), torch.randint(0, 2, (4,))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=epoch > 0):  # the first epoch is a warm-up in full precision
            loss = nn.functional.cross_entropy(net(x).float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
