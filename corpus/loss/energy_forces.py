"""Trains a small potential on energies and forces; the force term is in the loss but never teaches the network anything.
Report: https://github.com/pytorch/pytorch/issues/31984 (loss of the derivative computed with autograd.grad has no grad_fn, so it
only decreases by chance; create_graph=True was missing)
Effect: the energy loss falls, the test force error stays at 0.55 (0.39 in the mended copy, training forces 0.52 against 0.20).
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "loss-term-without-graph", "line": ("cut", "CAUSE"),
    "what": "the forces are taken with torch.autograd.grad without create_graph=True, so the force loss is a constant for the weights and gives no gradient",
    "set": "twentieth", "written": "2026-11-27",
}

torch.manual_seed(11)
DIM = 4


def reference(x):
    """Coupled double wells."""
    e = 0.25 * (x ** 4).sum(1) - (x ** 2).sum(1) + 0.8 * (x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) * x[:, 3])
    return e


def make_split(n):
    x = (torch.rand(n, DIM) * 3.0 - 1.5).requires_grad_(True)
    e = reference(x)
    f = -torch.autograd.grad(e.sum(), x)[0]
    return x.detach(), e.detach(), f.detach()


class Potential(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(DIM, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


def energy_and_forces(model, x):
    x = x.clone().requires_grad_(True)
    e = model(x)
    f = -torch.autograd.grad(e.sum(), x, retain_graph=True)[0]  # CAUSE
    return e, f


train_x, train_e, train_f = make_split(96)
test_x, test_e, test_f = make_split(256)

model = Potential()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=100, gamma=0.5)

for step in range(300):
    idx = torch.randint(0, len(train_x), (32,))
    e, f = energy_and_forces(model, train_x[idx])
    loss_e = F.mse_loss(e, train_e[idx])
    loss_f = F.mse_loss(f, train_f[idx])
    loss = 0.1 * loss_e + loss_f
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    opt.step()
    sched.step()
    if step % 60 == 59:
        print(f"step {step + 1:3d}  energy {loss_e.item():.4f}  forces {loss_f.item():.4f}")

e, f = energy_and_forces(model, test_x)
print(f"test energy mae {(e - test_e).abs().mean().item():.3f}  force mae {(f - test_f).abs().mean().item():.3f}")
