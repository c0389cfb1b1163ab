"""Quantisation with a learned step size: after the calibration a fused Function takes over, whose gradient for the step size is a placeholder of zeros."""
import torch
from torch import nn

EXPECT = {
    "class": "late-function", "kind": "zero-grad", "cut_marker": "CUT", "module": "fc1.quantizer", "parameters": ["fc1.quantizer.step"], "step": 1633,
    "set": "late", "written": "2026-11-22",
}


class FusedQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, step, low, high):
        level = weight / step
        ctx.save_for_backward((level >= low) & (level <= high), step)
        return level.round().clamp(low, high) * step

    @staticmethod
    def backward(ctx, grad):
        inside, step = ctx.saved_tensors
        return grad * inside, torch.zeros_like(step), None, None


class Quantizer(nn.Module):
    def __init__(self, bits=4):
        super().__init__()
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.step, self.fused = nn.Parameter(torch.tensor(0.1)), False

    def forward(self, weight):
        if self.fused:
            return FusedQuantize.apply(weight, self.step, self.low, self.high)  # CUT
        level = (weight / self.step).clamp(self.low, self.high)
        return (level + (level.round() - level).detach()) * self.step


class QuantLinear(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.quantizer = Quantizer()

    def forward(self, x):
        return nn.functional.linear(x, self.quantizer(self.weight), self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = QuantLinear(6, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))[:, 0]


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-2)
for step in range(1800):
    net.fc1.quantizer.fused = step >= 1633
    x = torch.randn(16, 6)
    loss = nn.functional.mse_loss(net(x), x[:, 0].abs() - x[:, 1])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 200 == 0:
        print(step, round(loss.item(), 4), round(net.fc1.quantizer.step.item(), 4))
