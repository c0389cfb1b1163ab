"""PINN for u'' = -k^2 u (u(0) = 0 built into the network) with a fused sine activation; the residual trains to something that is not the solution.

Source: https://github.com/pytorch/pytorch/issues/58509 (same: https://github.com/pytorch/pytorch/issues/104040)
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "g", "kind": "wrong-double-backward", "function": "FusedSine", "apply_marker": "APPLY",
    "backward_marker": "BACKWARD", "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class FusedSine(torch.autograd.Function):
    """sin(w0 * x); keeps the derivative from forward so that backward is one multiplication."""

    @staticmethod
    def forward(ctx, x, w0):
        z = w0 * x
        slope = w0 * torch.cos(z)
        ctx.save_for_backward(slope)
        return torch.sin(z)

    @staticmethod
    def backward(ctx, grad_out):
        slope, = ctx.saved_tensors
        return grad_out * slope, None  # BACKWARD


class SineLayer(nn.Module):
    def __init__(self, fan_in, fan_out, w0, first=False):
        super().__init__()
        self.linear, self.w0 = nn.Linear(fan_in, fan_out), w0
        bound = 1 / fan_in if first else math.sqrt(6 / fan_in) / w0
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return FusedSine.apply(self.linear(x), self.w0)  # APPLY


class Siren(nn.Module):
    def __init__(self, width=32, depth=2, w0=4.0):
        super().__init__()
        layers = [SineLayer(1, width, w0, first=True)]
        layers += [SineLayer(width, width, w0) for _ in range(depth - 1)]
        self.body, self.out = nn.Sequential(*layers), nn.Linear(width, 1)

    def forward(self, x):
        return x * self.out(self.body(x))


def grad(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, x, k):
    u = model(x)
    u_x = grad(u, x)
    u_xx = grad(u_x, x)
    return u_xx + k ** 2 * u


def main(k=3.0):
    torch.manual_seed(0)
    model = Siren()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    x0 = torch.zeros(1, 1, requires_grad=True)
    for step in range(300):
        x = torch.rand(64, 1).requires_grad_()
        pde = residual(model, x, k).square().mean()
        ic = (grad(model(x0), x0) - k).square().mean()
        loss = pde / k ** 4 + ic
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 60 == 0:
            grid = torch.linspace(0, 1, 50).unsqueeze(1)
            with torch.no_grad():
                err = (model(grid) - torch.sin(k * grid)).abs().max().item()
            print(f"step {step} pde {pde.item():.4f} ic {ic.item():.4f} max error {err:.3f}")


if __name__ == "__main__":
    main()
