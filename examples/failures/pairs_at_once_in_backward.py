"""A kernel sum over pairs of points goes chunk by chunk in the forward, and over all pairs at once in the backward."""

import torch
from torch import nn

EXPECT = {"kind": "out-of-memory", "line": ("allocated", "APPLIED")}


class KernelSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return sum(torch.exp(-(x[:64] - chunk[:64]).square().sum()) for chunk in x.split(4096))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        apart = x[:, None] - x  # n x n x d
        return grad * (-2 * apart * torch.exp(-apart.square().sum(-1, keepdim=True))).sum(1)


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 16))
    opt = torch.optim.Adam(net.parameters())
    caught = 0
    for _ in range(3):
        points = torch.randn(400_000, 2)
        loss = KernelSum.apply(net(points))  # APPLIED
        opt.zero_grad()
        try:
            loss.backward()
        except RuntimeError as error:  # torch.OutOfMemoryError on an accelerator
            caught += "memory" in str(error)
        opt.step()
    print({"reproduced": caught == 3})


if __name__ == "__main__":
    main()
