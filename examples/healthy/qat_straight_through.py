"""Healthy: quantisation-aware training with a straight-through round (detach trick and custom Function)."""

import torch
from torch import nn

EXPECT = {"kind": None}


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class QLinear(nn.Linear):
    def forward(self, x):
        scale = self.weight.detach().abs().max() / 7
        w = RoundSTE.apply(self.weight / scale).clamp(-8, 7) * scale
        return nn.functional.linear(x, w, self.bias)


class QAct(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(4.0))

    def forward(self, x):
        x = torch.minimum(torch.relu(x), self.alpha)
        q = torch.round(x * 15 / self.alpha) * self.alpha / 15
        return x + (q - x).detach()


torch.manual_seed(0)
net = nn.Sequential(QLinear(6, 16), QAct(), QLinear(16, 3))
net[1].alpha.data.fill_(0.5)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for _ in range(10):
    x = torch.randn(16, 6)
    loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
