"""Curve alignment by descent on the points themselves: in the second stage the curve is made anew from the first result and converted, which makes it no leaf.

Report: https://github.com/toinsson/pysdtw/issues/2 (requires_grad=True and then .to(...): .grad stays empty, with a warning about non-leaf tensors)
"""
import warnings

import torch

EXPECT = {
    "class": "nonleaf", "kind": "nonleaf-grad", "cut_marker": "CUT", "step": 60,
    "set": "seventh", "written": "2026-11-22",
}
warnings.simplefilter("ignore")


def start_curve(points, dtype):
    curve = torch.tensor(points, dtype=torch.float32, requires_grad=True).to(dtype)  # CUT
    return curve


def soft_distance(curve, target, gamma):
    cost = torch.cdist(curve, target).square()
    return -gamma * (torch.logsumexp(-cost / gamma, 1).mean() + torch.logsumexp(-cost / gamma, 0).mean())


def smoothness(curve):
    return (curve[2:] - 2 * curve[1:-1] + curve[:-2]).square().sum(1).mean()


class Aligner:
    def __init__(self, target, lr):
        self.target, self.lr, self.velocity = target, lr, 0.0

    def update(self, curve, gamma):
        loss = soft_distance(curve, self.target.to(curve.dtype), gamma) + 0.5 * smoothness(curve)
        loss.backward()
        gradient = curve.grad
        if gradient is None:
            return loss.item(), False
        with torch.no_grad():
            self.velocity = 0.8 * self.velocity + gradient
            curve -= self.lr * self.velocity
            curve.grad = None
        return loss.item(), True


torch.manual_seed(0)
angle = torch.linspace(0, 3.1, 24)
target = torch.stack([angle.cos(), angle.sin()], 1) + 0.02 * torch.randn(24, 2)
aligner = Aligner(target, lr=0.2)
curve = start_curve(torch.linspace(-1, 1, 32).view(16, 2).tolist(), torch.float32)
for step in range(120):
    if step == 60:  # the fine stage runs in double precision
        curve = start_curve(curve.tolist(), torch.float64)
        aligner.velocity = 0.0
    value, moved = aligner.update(curve, gamma=0.5 if step < 60 else 0.01)
    if step % 15 == 0:
        print(step, value, moved)
