"""Sequence model with a fused linear layer as an own Function: its backward takes a view of the gradient; from the stage on in which the output is transposed for a loss over time, the gradient has other strides.

Report: https://github.com/NVIDIA/apex/pull/1573 (view size is not compatible: grad_output with non-contiguous strides in a linear layer's backward)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "custom-function", "kind": "backward-error", "apply_marker": "APPLY", "step": 45,
    "set": "eighth", "written": "2026-11-22",
}


class LinearWithAccumulation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_input = grad_output @ weight
        grad_output = grad_output.view(grad_output.shape[0] * grad_output.shape[1], grad_output.shape[2])
        x = x.reshape(-1, x.shape[-1])
        return grad_input, grad_output.T @ x, grad_output.sum(0)


class FusedLinear(nn.Linear):
    def forward(self, x):
        return LinearWithAccumulation.apply(x, self.weight, self.bias)  # APPLY


class Forecaster(nn.Module):
    def __init__(self, channels=3, hidden=24, quantiles=5):
        super().__init__()
        self.rnn = nn.GRU(channels, hidden, batch_first=True)
        self.mix = FusedLinear(hidden, hidden)
        self.out = FusedLinear(hidden, quantiles)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(torch.tanh(self.mix(h)))


def pinball(prediction, target, levels):
    error = target.unsqueeze(-1) - prediction
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def smoothed(prediction, target, levels):
    """The same on averages over three steps, quantiles as channels."""
    channels = F.avg_pool1d(prediction.transpose(1, 2).contiguous(), 3, stride=1)
    error = F.avg_pool1d(target.unsqueeze(1), 3, stride=1) - channels
    return torch.maximum(levels[:, None] * error, (levels[:, None] - 1) * error).mean()


def series(n, length=24):
    time = torch.arange(length + 1.0) / 4
    phase = 6.28 * torch.rand(n, 3, 1)
    x = (torch.sin(time + phase) + 0.1 * torch.randn(n, 3, length + 1)).transpose(1, 2)
    return x[:, :-1], x[:, 1:, 0]


torch.manual_seed(0)
model, levels = Forecaster(), torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for step in range(90):
    x, target = series(16)
    criterion = pinball if step < 45 else smoothed
    loss = criterion(model(x), target, levels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item())
