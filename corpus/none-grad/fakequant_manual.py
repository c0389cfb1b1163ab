"""Quantisation-aware training with a straight-through Function and hand written momentum SGD."""
import time
import torch
from torch import nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-custom-function", "kind": "none-grad", "cut_marker": "CULPRIT", "step": 240,
    "set": "late_longer", "written": "2026-11-25",
}


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bits):
        ctx.bits = bits
        lo, hi = x.min(), x.max()
        levels = 2 ** bits - 1
        step = (hi - lo).clamp(min=1e-6) / levels
        return torch.round((x - lo) / step) * step + lo

    @staticmethod
    def backward(ctx, grad):
        if ctx.bits >= 8:
            return grad, None
        return None, None


class QuantAct(nn.Module):
    def __init__(self, bits=8):
        super().__init__()
        self.bits = bits

    def forward(self, x):
        return FakeQuant.apply(x, self.bits)  # CULPRIT


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.quant = QuantAct()
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(48 * 16, 160), nn.ReLU(), nn.Linear(160, 10))

    def forward(self, x):
        return self.classifier(self.quant(self.features(x)))


def sgd(params, bufs, lr, mom=0.9):
    with torch.no_grad():
        for p, b in zip(params, bufs):
            if p.grad is None:
                continue
            b.mul_(mom).add_(p.grad)
            p.add_(b, alpha=-lr)
            p.grad = None


def bits_for(step):
    return 8 if step < 240 else 6


torch.manual_seed(17)
d = load_digits()
X = torch.tensor(d.images, dtype=torch.float32)[:, None] / 16.0
Y = torch.tensor(d.target)
net = QNet()
params = list(net.parameters())
bufs = [torch.zeros_like(p) for p in params]
t0 = time.time()
for step in range(420):
    net.quant.bits = bits_for(step)
    i = torch.randint(0, len(X), (288,))
    loss = F.cross_entropy(net(X[i]), Y[i])
    loss.backward()
    sgd(params, bufs, lr=0.02)
    if step % 50 == 49:
        print(f"step {step} bits {net.quant.bits} loss {loss.item():.4f} {(time.time() - t0) / (step + 1) * 1e3:.1f} ms/step")
