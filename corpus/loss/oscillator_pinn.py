"""Physics-informed network for a damped oscillator; the residual losses are put into a new tensor, so the equation carries no gradient and only the starting point is learned.

Report: https://github.com/lululxvi/deepxde/pull/1388 (as_tensor() on the residuals made a new tensor, the loss was detached from the graph and no gradient descent was possible)
"""
import math

import torch
import torch.nn as nn

EXPECT = {
    "framework": "plain", "kind": "loss-term-without-graph", "line": ("cut", "CAUSE"),
    "what": "torch.tensor(...) copies the values of the residual losses into a new tensor without history, so the physics part of the loss has no gradient; use torch.stack or plain addition",
    "set": "nineteenth", "written": "2026-11-27",
}

DAMPING, OMEGA, T_END = 0.3, 2.0, 1.6


def exact(t):
    w = math.sqrt(OMEGA ** 2 - DAMPING ** 2)
    return torch.exp(-DAMPING * t) * (torch.cos(w * t) + DAMPING / w * torch.sin(w * t))


class PINN(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 2),
        )

    def forward(self, t):
        out = self.net(t)
        return out[:, :1], out[:, 1:]


def d_dt(y, t):
    return torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]


def residuals(model, t):
    t = t.clone().requires_grad_(True)
    x, v = model(t)
    return [d_dt(x, t) - v, d_dt(v, t) + 2 * DAMPING * v + OMEGA ** 2 * x]


def physics_loss(model, t, weights):
    terms = [(r ** 2).mean() for r in residuals(model, t)]
    return (weights * torch.tensor(terms)).sum()  # CAUSE


def initial_loss(model):
    x0, v0 = model(torch.zeros(1, 1))
    return ((x0 - 1.0) ** 2 + v0 ** 2).mean()


def main():
    torch.manual_seed(0)
    model = PINN()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=400, eta_min=2e-4)
    weights = torch.tensor([1.0, 0.5])
    t_test = torch.linspace(0, T_END, 200).unsqueeze(1)
    for step in range(400):
        t = torch.rand(128, 1) * T_END
        loss_ic = initial_loss(model)
        loss_pde = physics_loss(model, t, weights)
        loss = 10.0 * loss_ic + loss_pde
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 80 == 0 or step == 399:
            with torch.no_grad():
                err = (model(t_test)[0] - exact(t_test)).abs().max().item()
            print(f"step {step:3d}  ic {loss_ic.item():.2e}  pde {loss_pde.item():.3f}  max error {err:.3f}")


if __name__ == "__main__":
    main()
