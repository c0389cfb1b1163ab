"""Healthy: reversible residual blocks as an own Function; the forward keeps nothing but the last output, backward works the inputs out of it block by block, computes each block again with gradients and adds to the parameters by itself.

Report it resembles: https://github.com/silvandeleemput/memcnn/issues/4 (two ways to write the own Function of a reversible block, and whether their gradients are the same)
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "tenth", "written": "2026-11-23"}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.g = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x1, x2):
        y1 = x1 + self.f(x2)
        return y1, x2 + self.g(y1)

    def undo(self, y1, y2, d1, d2):
        with torch.enable_grad():
            y1.requires_grad_()
            g = self.g(y1)
            g.backward(d2)
        with torch.no_grad():
            x2 = y2 - g
            d1 = d1 + y1.grad
        with torch.enable_grad():
            x2.requires_grad_()
            f = self.f(x2)
            f.backward(d1)
        with torch.no_grad():
            x1 = y1 - f
            return x1.detach(), x2.detach(), d1, d2 + x2.grad


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x1, x2, blocks):
        ctx.blocks = blocks
        for block in blocks:
            x1, x2 = block(x1, x2)
        ctx.save_for_backward(x1.detach(), x2.detach())
        return x1, x2

    @staticmethod
    def backward(ctx, d1, d2):
        y1, y2 = ctx.saved_tensors
        y1, y2 = y1.clone(), y2.clone()
        for block in reversed(ctx.blocks):
            y1, y2, d1, d2 = block.undo(y1, y2, d1, d2)
        return d1, d2, None


class Net(nn.Module):
    def __init__(self, width=48, depth=4):
        super().__init__()
        self.inlet, self.out = nn.Linear(64, 2 * width), nn.Linear(2 * width, 10)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        return self.out(torch.cat(Reversible.apply(*self.inlet(x).chunk(2, 1), self.blocks), 1))


torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(100):
    pick = torch.randint(0, 1500, (64,))
    loss = F.cross_entropy(net(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        with torch.no_grad():
            print(step, loss.item(), (net(x[1500:]).argmax(1) == y[1500:]).float().mean().item())
