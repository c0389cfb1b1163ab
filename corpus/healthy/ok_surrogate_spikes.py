"""Healthy: spiking network with a surrogate slope of one's own on purpose, a reset that is detached on purpose and eval for the test with a way back.

Report it resembles: https://github.com/fangwei123456/spikingjelly/issues/268 (a custom surrogate gradient, its Function is not the derivative of what it computes)
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "eighth", "written": "2026-11-22"}


class TriangleSpike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, width):
        ctx.save_for_backward(v)
        ctx.width = width
        return (v >= 0).to(v)

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad * (1 - v.abs() / ctx.width).clamp(min=0.05), None


class PLIF(nn.Module):
    """Leak is learned, the reset is by subtraction and outside of the graph."""

    def __init__(self, width=2.0):
        super().__init__()
        self.leak, self.width = nn.Parameter(torch.tensor(0.0)), width

    def forward(self, current):
        v, out = torch.zeros_like(current[:, 0]), []
        for t in range(current.shape[1]):
            v = v + (current[:, t] - v) * self.leak.sigmoid()
            spike = TriangleSpike.apply(v - 1.0, self.width)
            v = v - spike.detach()
            out.append(spike)
        return torch.stack(out, 1)


class SpikingClassifier(nn.Module):
    def __init__(self, inputs=8, hidden=24, classes=3):
        super().__init__()
        self.fc1, self.lif1, self.fc2, self.lif2 = nn.Linear(inputs, hidden), PLIF(), nn.Linear(hidden, hidden), PLIF()
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        rate = self.lif2(2 * self.fc2(self.lif1(2 * self.fc1(x))))
        return self.out(rate.mean(1)), rate.mean()


def signals(n, length=10):
    label = torch.randint(0, 3, (n,))
    time = torch.arange(length)[None, :, None] * (0.4 + 0.5 * label[:, None, None])
    phase = torch.arange(8)[None, None] * 0.7
    return 1.5 * torch.sin(time + phase) + 0.4 * torch.randn(n, length, 8), label


torch.manual_seed(0)
net = SpikingClassifier()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for step in range(150):
    x, label = signals(48)
    logits, rate = net(x)
    loss = nn.functional.cross_entropy(logits, label) + 0.05 * (rate - 0.2).square()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        net.eval()
        with torch.no_grad():
            x, label = signals(200)
            right = (net(x)[0].argmax(1) == label).float().mean().item()
        net.train()
        print(step, loss.item(), right)
