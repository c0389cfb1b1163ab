"""Controller for a driven double pendulum, trained through the simulation: with the short horizon gradients are moderate, after the curriculum's step to a long one they double with every few time steps.

Report: https://github.com/NVIDIA/warp/issues/650 (gradients for longer time horizons; norms that grow like this also in google/brax issue 186)
"""
import torch
from torch import nn

EXPECT = {
    "class": "exploding-rows", "kind": "exploding-gradient", "source_marker": "CULPRIT", "step": 40,
    "set": "eighth", "written": "2026-11-22",
}


def acceleration(q, v, torque):
    """Two links of equal mass and length."""
    delta = q[:, 0] - q[:, 1]
    c, s = delta.cos(), delta.sin()
    a = -9.81 * 2 * q[:, 0].sin() - s * v[:, 1] ** 2 + torque[:, 0]
    b = -9.81 * q[:, 1].sin() + s * v[:, 0] ** 2 + torque[:, 1]
    denominator = 2 - c**2
    return torch.stack([(a - c * b) / denominator, (2 * b - c * a) / denominator], 1)


class Simulator:
    def __init__(self, dt=0.05):
        self.dt = dt

    def step(self, q, v, torque):
        v = v + self.dt * (acceleration(q, v, torque) - 0.1 * v)  # CULPRIT
        q = q + self.dt * v  # CULPRIT
        return q, v


class Controller(nn.Module):
    def __init__(self, limit=2.0):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
        self.limit = limit

    def forward(self, q, v):
        return self.limit * torch.tanh(self.net(torch.cat([q.sin(), q.cos(), 0.2 * v], 1)))


def rollout(controller, simulator, q, v, horizon):
    for _ in range(horizon):
        q, v = simulator.step(q, v, controller(q, v))
    return (1 + q.cos()).mean()  # hang up side down at the end


torch.manual_seed(0)
controller, simulator = Controller(), Simulator()
optimizer = torch.optim.Adam(controller.parameters(), lr=1e-3)
for step in range(50):
    horizon = 10 if step < 40 else 200
    q, v = 2.5 + 0.3 * torch.randn(4, 2), 0.5 * torch.randn(4, 2)
    loss = rollout(controller, simulator, q, v, horizon)
    optimizer.zero_grad()
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in controller.parameters()]).norm()
    optimizer.step()
    if step % 5 == 0:
        print(step, loss.item(), norm.item())
