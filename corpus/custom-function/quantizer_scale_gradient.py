"""Learned step size quantiser, own Function: the straight-through part forgets the gradient that comes in for the scale.

Report: https://github.com/ritheshkumar95/pytorch-vqvae/issues/7 (a straight-through Function with a wrong edge)
"""
import torch
from torch import nn

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLY",
    "set": "first", "written": "2026-11-22",
}


class ScaleShift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, shift):
        ctx.save_for_backward(x, scale)
        return x * scale + shift

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * scale, x.sum(0), g.sum(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(6, 5), nn.Linear(5, 1)
        self.scale, self.shift = nn.Parameter(torch.ones(5)), nn.Parameter(torch.zeros(5))

    def forward(self, x):
        z = ScaleShift.apply(self.fc(x), self.scale, self.shift)  # APPLY
        return self.out(torch.tanh(z))


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-3)
for step in range(25):
    x = torch.randn(16, 6)
    loss = (net(x) - x[:, :1]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
