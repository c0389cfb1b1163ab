"""Plan of thrusts for a lander, found by gradient descent written by hand: after the first update the name stands for the result of a subtraction, which is no leaf and has no gradient in the second round.

Report: https://github.com/ranshiju/Python-for-Tensor-Network-Tutorial/issues/2 (v = v - lr * v.grad, which has to be written to v.data)
"""
import warnings

import torch
from torch import nn

EXPECT = {"class": "nonleaf", "kind": "nonleaf-grad", "cut_marker": "CUT", "set": "ninth", "written": "2026-11-23"}
warnings.simplefilter("ignore")


class Lander(nn.Module):
    """Height, speed and fuel over time under gravity and drag; the density of the air is uncertain."""

    def __init__(self, dt=0.1, gravity=1.6):
        super().__init__()
        self.dt, self.gravity = dt, gravity
        self.register_buffer("drag", torch.linspace(0.0, 0.05, 8))

    def forward(self, thrust):
        height, speed = torch.full_like(self.drag, 20.0), torch.full_like(self.drag, -3.0)
        used = torch.zeros(())
        for force in thrust:
            speed = speed + self.dt * (force - self.gravity - self.drag * speed * speed.abs())
            height = height + self.dt * speed
            used = used + self.dt * nn.functional.softplus(force)
        return height, speed, used


class Descent:
    def __init__(self, plan, lr, shrink):
        self.plan, self.lr, self.shrink = plan, lr, shrink

    def step(self):
        self.plan = self.plan - self.lr * self.plan.grad.clamp(-5, 5)  # CUT
        self.lr *= self.shrink


torch.manual_seed(0)
lander = Lander()
start = (1.2 + 0.1 * torch.randn(60)).requires_grad_(True)
search = Descent(start, lr=0.02, shrink=0.995)
for step in range(200):
    height, speed, used = lander(search.plan)
    loss = height.square().mean() + 2 * speed.square().mean() + 0.05 * used
    loss.backward()
    print(step, loss.item(), "leaf:", search.plan.is_leaf)
    search.step()
