"""Poisson PINN: Adam first, then L-BFGS with a closure; sine activation as a Function that can be differentiated twice.

Source: https://github.com/pytorch/pytorch/issues/18619 (what a Function must save to be right twice)
"""
import math

import torch
from torch import nn

EXPECT = {"kind": "none", "set": "twelfth", "written": "2026-11-25"}


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_out):
        x, = ctx.saved_tensors
        return grad_out * x.cos()


class Field(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, xy):
        h = Sine.apply(2 * self.a(xy))
        u = self.c(Sine.apply(self.b(h)))
        return u * (xy * (1 - xy)).prod(1, keepdim=True)


def laplacian(u, xy):
    g, = torch.autograd.grad(u.sum(), xy, create_graph=True)
    total = 0
    for i in range(xy.shape[1]):
        h, = torch.autograd.grad(g[:, i].sum(), xy, create_graph=True)
        total = total + h[:, i:i + 1]
    return total


def source(xy):
    return -2 * math.pi ** 2 * (math.pi * xy).sin().prod(1, keepdim=True)


def residual_loss(model, xy):
    return (laplacian(model(xy), xy) - source(xy)).square().mean() / 100


def error(model):
    g = torch.linspace(0, 1, 20)
    xy = torch.cartesian_prod(g, g)
    with torch.no_grad():
        return (model(xy) - (math.pi * xy).sin().prod(1, keepdim=True)).abs().max().item()


def main():
    torch.manual_seed(0)
    model = Field()
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(120):
        adam.zero_grad()
        loss = residual_loss(model, torch.rand(128, 2, requires_grad=True))
        loss.backward()
        adam.step()
    print(f"adam loss {loss.item():.4f} error {error(model):.4f}")

    points = torch.rand(256, 2, requires_grad=True)
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=10, history_size=10, line_search_fn="strong_wolfe")

    def closure():
        lbfgs.zero_grad()
        points.grad = None
        value = residual_loss(model, points)
        value.backward()
        return value

    for outer in range(12):
        loss = lbfgs.step(closure)
        if outer % 3 == 0:
            print(f"lbfgs {outer} loss {loss.item():.6f} error {error(model):.4f}")


if __name__ == "__main__":
    main()
