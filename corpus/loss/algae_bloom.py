"""The time derivative in the physics residual is taken with retain_graph instead of create_graph, so it is a constant
for the weights and the residual is pushed only through its growth term.

Report: a kind of mistake known from discuss.pytorch.org threads on PINN residuals (torch.autograd.grad without
create_graph)
"""
import math

import torch
from torch import nn

EXPECT = {
    "kind": "loss-term-without-graph",
    "line": ("cut", "HERE"),
    "plain": "after 1000 steps physics loss 4.18 (rising) and rmse to the solver 1.58; with create_graph=True 0.0012 and 0.0056",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


RATE = 1.5
START = 0.3
HORIZON = 2.5


class Bloom(nn.Module):
    """Share of the pond covered by algae over the days, from the growth law alone."""

    def __init__(self, width=32, depth=3):
        super().__init__()
        layers, n_in = [], 1
        for _ in range(depth):
            layers += [nn.Linear(n_in, width), nn.Tanh()]
            n_in = width
        layers.append(nn.Linear(width, 1))
        self.body = nn.Sequential(*layers)

    def forward(self, t):
        return self.body(t / HORIZON * 2 - 1)


def growth(u, t):
    return RATE * u * (1 - 0.4 * u) + 0.6 * torch.cos(3.0 * t)


def residual(model, t):
    t = t.requires_grad_(True)
    u = model(t)
    u_t = torch.autograd.grad(u.sum(), t, retain_graph=True)[0]  # HERE
    return u_t - growth(u, t)


def integrate(n=2000):
    h = HORIZON / n
    u = torch.tensor(START, dtype=torch.float64)
    path = [u]
    for i in range(n):
        t = torch.tensor(i * h, dtype=torch.float64)
        mid = u + 0.5 * h * growth(u, t)
        u = u + h * growth(mid, t + 0.5 * h)
        path.append(u)
    return torch.stack(path).float()[:, None]


class Solver:
    def __init__(self, model, lr=4e-3, weight=10.0):
        self.model, self.weight = model, weight
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, gamma=0.998)
        self.t0 = torch.zeros(1, 1)
        self.grid = torch.linspace(0, HORIZON, 2001)[:, None]
        self.truth = integrate()

    def step(self, n=128):
        t = torch.rand(n, 1) * HORIZON
        physics = residual(self.model, t).pow(2).mean()
        initial = (self.model(self.t0) - START).pow(2).mean()
        loss = physics + self.weight * initial
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        return physics.item(), initial.item()

    @torch.no_grad()
    def error(self):
        return math.sqrt((self.model(self.grid) - self.truth).pow(2).mean().item())


def main():
    torch.manual_seed(4)
    solver = Solver(Bloom())
    for step in range(1000):
        physics, initial = solver.step()
        if step % 200 == 0 or step == 999:
            print(f"step {step:4d}  physics {physics:.5f}  start {initial:.6f}  "
                  f"rmse to solver {solver.error():.4f}")


if __name__ == "__main__":
    main()
