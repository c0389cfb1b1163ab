"""Physics informed network for the heat equation on a rod: Adam first, then L-BFGS.

Story: Adam brings the residual down, then L-BFGS is to polish.  Instead the loss stands still
or gets worse, as if the line search was mad.
Based on public reports: PINA-org/PINA#100 and NeuroDiffGym/neurodiffeq#159 on what belongs into
the closure (the docs of LBFGS say that it should clear the gradients).
"""
import math

import torch
from torch import nn

EXPECT = {
    "class": "x", "kind": "gradient-not-cleared", "stepping_marker": "STEP", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

ALPHA = 0.1


class Rod(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x, t):
        return self.net(torch.cat([2 * x - 1, 2 * t - 1], dim=1))


def residual(model, x, t):
    x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
    u = model(x, t)
    u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    return u_t - ALPHA * u_xx


class Problem:
    def __init__(self, points=160):
        g = torch.Generator().manual_seed(0)
        self.x, self.t = torch.rand(points, 1, generator=g), torch.rand(points, 1, generator=g)
        self.x0 = torch.linspace(0, 1, 40).unsqueeze(1)
        self.u0 = torch.sin(math.pi * self.x0)
        self.tb = torch.linspace(0, 1, 20).unsqueeze(1)

    def loss(self, model):
        pde = residual(model, self.x, self.t).pow(2).mean()
        initial = (model(self.x0, torch.zeros_like(self.x0)) - self.u0).pow(2).mean()
        left = model(torch.zeros_like(self.tb), self.tb).pow(2).mean()
        right = model(torch.ones_like(self.tb), self.tb).pow(2).mean()
        return pde + 5 * initial + left + right

    @torch.no_grad()
    def error(self, model):
        exact = torch.exp(-ALPHA * math.pi ** 2 * self.t) * torch.sin(math.pi * self.x)
        return (model(self.x, self.t) - exact).abs().max().item()


def adam_phase(model, problem, steps):
    adam = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(steps):
        adam.zero_grad()
        loss = problem.loss(model)
        loss.backward()
        adam.step()
        if step % 100 == 0:
            print(f"adam {step:4d} loss {loss.item():.5f} error {problem.error(model):.4f}")


def lbfgs_phase(model, problem, rounds):
    lbfgs = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=4, history_size=10)

    def closure():
        loss = problem.loss(model)
        loss.backward()
        return loss

    for i in range(rounds):
        loss = lbfgs.step(closure)  # STEP
        if i % 5 == 0:
            print(f"lbfgs {i:3d} loss {loss.item():.5f} error {problem.error(model):.4f}")


def main():
    torch.manual_seed(0)
    model, problem = Rod(), Problem()
    adam_phase(model, problem, 400)
    lbfgs_phase(model, problem, 30)


if __name__ == "__main__":
    main()
