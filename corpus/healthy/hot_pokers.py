"""An inverse problem of physics: Adam, then LBFGS, and a double backward through a custom function."""

import math

import torch
import torch.nn as nn

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}


torch.manual_seed(61)
torch.set_default_dtype(torch.float64)

DIFFUSIVITY = 0.15


class SinLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.cos(x)


class Rod(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.a = nn.Linear(2, width)
        self.b = nn.Linear(width, width)
        self.c = nn.Linear(width, 1)
        self.raw_rate = nn.Parameter(torch.tensor(-1.0))
        for layer in (self.a, self.b):
            nn.init.xavier_normal_(layer.weight, gain=1.2)

    @property
    def rate(self):
        return nn.functional.softplus(self.raw_rate)

    def forward(self, x, t):
        h = SinLayer.apply(self.a(torch.cat([2 * x - 1, 2 * t - 1], dim=1)))
        h = SinLayer.apply(self.b(h))
        return x * (1 - x) * self.c(h)


def truth(x, t):
    k = math.pi
    return torch.sin(k * x) * torch.exp(-DIFFUSIVITY * k * k * t)


def residual(model, x, t):
    x = x.clone().requires_grad_(True)
    t = t.clone().requires_grad_(True)
    u = model(x, t)
    ones = torch.ones_like(u)
    u_x, u_t = torch.autograd.grad(u, (x, t), ones, create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x, x, ones, create_graph=True)
    return u_t - model.rate * u_xx


def main():
    model = Rod()
    x_in, t_in = torch.rand(200, 1), torch.rand(200, 1)
    x_obs, t_obs = torch.rand(60, 1), torch.rand(60, 1)
    u_obs = truth(x_obs, t_obs) + 0.002 * torch.randn(60, 1)
    grid = torch.cartesian_prod(torch.linspace(0, 1, 21), torch.linspace(0, 1, 21))

    def objective():
        fit = (model(x_obs, t_obs) - u_obs).pow(2).mean()
        start = (model(x_in, torch.zeros_like(x_in)) - truth(x_in, torch.zeros_like(x_in))).pow(2).mean()
        physics = residual(model, x_in, t_in).pow(2).mean()
        return fit + start + 0.1 * physics

    def report(tag, value):
        with torch.no_grad():
            gap = (model(grid[:, :1], grid[:, 1:]) - truth(grid[:, :1], grid[:, 1:])).abs().max().item()
        print(f"{tag}  loss {value:.2e}  worst {gap:.4f}  rate {model.rate.item():.4f}")

    warm = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1, 241):
        warm.zero_grad()
        loss = objective()
        loss.backward()
        warm.step()
        if step % 80 == 0:
            report(f"adam {step:4d}", loss.item())

    opt = torch.optim.LBFGS(
        model.parameters(), lr=1.0, max_iter=10, history_size=20, line_search_fn="strong_wolfe"
    )

    def closure():
        opt.zero_grad()
        loss = objective()
        loss.backward()
        return loss

    for outer in range(1, 11):
        loss = opt.step(closure)
        if outer % 2 == 0:
            report(f"lbfgs {outer:3d}", loss.item())


if __name__ == "__main__":
    main()
