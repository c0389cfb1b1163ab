"""Fake quantisation with a learned scale: the gradient of the scale is multiplied by the gradient for the input in place of the one that came in.

Report: https://github.com/pytorch/pytorch/pull/42034 (updates to scale and zero point gradient calculation)
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLIED",
    "set": "fourth", "written": "2026-11-22",
}


class ScaleAndSoftClip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        level = torch.tanh(x / scale)
        ctx.save_for_backward(x, scale, level)
        return level * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale, level = ctx.saved_tensors
        slope = 1 - level.square()
        grad_x = grad * slope
        grad_scale = (level - slope * x / scale) * grad_x
        return grad_x, grad_scale.sum().reshape(scale.shape)


class QuantLinear(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return nn.functional.linear(x, ScaleAndSoftClip.apply(self.weight, self.scale), self.bias)  # APPLIED


torch.manual_seed(0)
net = nn.Sequential(QuantLinear(6, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), 0.05)
for step in range(40):
    x = torch.randn(16, 6)
    loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), net[0].scale.item())
