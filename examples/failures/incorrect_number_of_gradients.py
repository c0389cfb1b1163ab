"""Sign with a straight-through backward returns one gradient, forward has two inputs."""

import torch
from torch import nn

EXPECT = {"kind": "wrong-backward-shape", "line": ("applied", "APPLY"), "module": "binarizer"}


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, is_training):
        if is_training:
            prob = x.new_empty(x.size()).uniform_()
            return torch.where((1 - x) / 2 <= prob, 1.0, -1.0)
        return x.sign()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output  # BACKWARD


class Binarizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        return Sign.apply(torch.tanh(self.conv(x)), self.training)  # APPLY


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.binarizer, self.decoder = Binarizer(), nn.Conv2d(2, 3, 1)

    def forward(self, x):
        return self.decoder(self.binarizer(x))


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.rand(2, 3, 4, 4)
    (Codec()(x) - x).abs().mean().backward()
