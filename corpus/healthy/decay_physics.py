"""A physics-informed network fits a damped oscillator and identifies the damping constant at the same time. Healthy.

Looks odd: the constant is a lone nn.Parameter in a second param group with a large rate, collocation points are made anew with
requires_grad each step, and a detached copy of it is stored for the history. The constant goes to its true value.
"""
import torch
import torch.nn as nn

EXPECT = {"framework": "plain", "kind": None, "set": "twentyfirst", "written": "2026-11-27"}

TRUE_C, K = 0.8, 4.0


def exact(t):
    w = (K - TRUE_C ** 2 / 4) ** 0.5
    return torch.exp(-TRUE_C * t / 2) * torch.cos(w * t)


def derivative(y, t):
    return torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.c = nn.Parameter(torch.tensor(0.1))

    def forward(self, t):
        return self.net(t)

    def residual(self, t):
        u = self(t)
        du = derivative(u, t)
        return derivative(du, t) + self.c * du + K * u


torch.manual_seed(0)
field = Field()
optimizer = torch.optim.Adam([{"params": field.net.parameters(), "lr": 5e-3},
                              {"params": [field.c], "lr": 1e-2}])
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [300], gamma=0.2)
t_obs = torch.linspace(0, 3, 40).unsqueeze(1)
u_obs = exact(t_obs) + 0.005 * torch.randn_like(t_obs)
history = []

for step in range(400):
    t = (3 * torch.rand(96, 1)).requires_grad_(True)
    fit = ((field(t_obs) - u_obs) ** 2).mean()
    phys = (field.residual(t) ** 2).mean()
    loss = 10.0 * fit + 0.1 * phys
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    history.append(field.c.detach().clone())
    if step % 80 == 79:
        print(f"step {step} fit {fit.item():.5f} physics {phys.item():.4f} c {history[-1].item():.3f}")

print("damping", round(torch.stack(history[-20:]).mean().item(), 3), "true", TRUE_C)
