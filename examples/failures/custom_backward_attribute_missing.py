"""Custom function forgets to keep a value on ctx in eval mode: AttributeError in the backward."""

import torch
from torch import nn

EXPECT = {"kind": "backward-error", "line": ("cause", "APPLY"), "module": "drop"}


class DropPath(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, p, training):
        ctx.p = p
        if not training:
            return x.clone()
        ctx.mask = (torch.rand(len(x), 1) > p).float()
        return x * ctx.mask / (1 - p)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.mask / (1 - ctx.p), None, None


class Drop(nn.Module):
    def forward(self, x):
        return DropPath.apply(x, 0.2, self.training)  # APPLY


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop, self.out = nn.Linear(4, 4), Drop(), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.drop(self.fc(x)))


torch.manual_seed(0)
net = Net().eval()  # frozen batch-norm style fine-tuning
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loss = net(torch.randn(6, 4)).square().mean()
loss.backward()
opt.step()
