"""Own linear layer: grad of the bias is averaged over the batch instead of summed."""

import torch
from torch import nn

EXPECT = {"kind": "wrong-backward", "line": ("applied", "APPLY"), "module": "fc1", "ask": "functions"}


class MyLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return x @ w.t() + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x, g.mean(0)  # BACKWARD


class Dense(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(o, i) / i**0.5), nn.Parameter(torch.zeros(o))

    def forward(self, x):
        return MyLinear.apply(x, self.weight, self.bias)  # APPLY


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = Dense(5, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(10, 5)), torch.randint(0, 2, (10,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
