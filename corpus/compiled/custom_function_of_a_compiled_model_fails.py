"""A custom function around a compiled block multiplies in the wrong order in its backward."""

import os

import torch
from torch import nn

EXPECT = {"kind": "backward-error", "line": ("cause", "HERE"), "set": "compiled", "written": "2026-11-23"}
BACKEND = os.environ.get("BACKEND", "aot_eager")


class Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), grad.t() @ x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.weight = nn.Linear(4, 6), nn.Parameter(torch.randn(3, 6))

    @torch.compiler.disable
    def mix(self, hidden):
        return Mix.apply(hidden, self.weight)  # HERE

    def forward(self, x):
        return self.mix(torch.tanh(self.embed(x))).square().mean()


torch.manual_seed(0)
net = Net()
run = torch.compile(net, backend=BACKEND)
for _step in range(2):
    run(torch.randn(8, 4)).backward()
