"""Custom focal-style function: the hand-derived backward has a wrong sign in one term."""

import torch
from torch import nn

EXPECT = {"kind": "wrong-backward", "line": ("applied", "APPLY"), "ask": "functions"}


class FocalPower(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p, gamma):
        ctx.save_for_backward(p)
        ctx.gamma = gamma
        return -((1 - p) ** gamma) * torch.log(p)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        g = ctx.gamma
        local = -g * (1 - p) ** (g - 1) * torch.log(p) - (1 - p) ** g / p
        return grad_output * local, None  # BACKWARD


def focal_loss(logits, target, gamma=2.0):
    p = logits.sigmoid()
    pt = torch.where(target > 0, p, 1 - p)
    return FocalPower.apply(pt.clamp(1e-4, 1 - 1e-4), gamma).mean()  # APPLY


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(6, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(12, 6)
        loss = focal_loss(net(x).squeeze(1), (x[:, 0] > 0).float())
        opt.zero_grad()
        loss.backward()
        opt.step()
