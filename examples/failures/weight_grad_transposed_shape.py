"""Custom low-rank product returns the weight gradient transposed (not square, so torch notices)."""

import torch
from torch import nn

EXPECT = {"kind": "wrong-backward-shape", "line": ("applied", "APPLY")}


class LowRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.matmul(w)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        grad_x = grad_w = None
        if ctx.needs_input_grad[0]:
            grad_x = grad.matmul(w.t())
        if ctx.needs_input_grad[1]:
            grad_w = grad.t().matmul(x)
        return grad_x, grad_w  # BACKWARD


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.fc = nn.Parameter(torch.randn(7, 3)), nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(LowRank.apply(x, self.down))  # APPLY


def main():
    torch.manual_seed(0)
    model = Model()
    model(torch.randn(5, 7)).mean().backward()


if __name__ == "__main__":
    main()
