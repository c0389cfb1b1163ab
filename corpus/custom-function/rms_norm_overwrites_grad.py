"""Fused RMS norm, own Function: the gradient of the input is written over the incoming one, the gradient of the weight is taken from it afterwards.

Report: https://github.com/unslothai/unsloth/pull/4550
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLY", "module": "norm",
    "set": "second", "written": "2026-11-22",
}


class FastRms(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, r)
        return x * r * weight

    @staticmethod
    def backward(ctx, dy):
        x, weight, r = ctx.saved_tensors
        normed = x * r
        dx = dy  # the buffer is used again
        dw_rows = (dy * weight * normed).mean(-1, keepdim=True)
        dx.mul_(weight).sub_(normed * dw_rows).mul_(r)
        dw = (dy * normed).sum(0)
        return dx, dw, None


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return FastRms.apply(x, self.weight, 1e-6)  # APPLY


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.out = nn.Linear(6, 16), Norm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.norm(self.embed(x)).tanh())


torch.manual_seed(0)
net = Net()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(30):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.arange(8) % 4)
    opt.zero_grad()
    loss.backward()
    opt.step()
x, w = torch.randn(3, 16), torch.rand(16, requires_grad=True)
up = torch.randn(3, 16)
mine = torch.autograd.grad(FastRms.apply(x, w, 1e-6), w, up.clone())[0]
right = torch.autograd.grad(nn.functional.rms_norm(x, (16,), w, 1e-6), w, up)[0]
print("reproduced", (mine - right).abs().max().item())
