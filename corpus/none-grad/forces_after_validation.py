"""Interatomic potential that is fitted to forces: their graph is created only in training mode, validation switches to eval() and nobody switches back.

Report: https://github.com/atomistic-machine-learning/schnetpack/issues/279 (create_graph depends on self.training, which surprises whoever differentiates in eval mode)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-cut", "kind": "none-grad", "cut_marker": "CUT", "step": 60,
    "set": "seventh", "written": "2026-11-22",
}


class RadialNet(nn.Module):
    def __init__(self, centres=12, hidden=24):
        super().__init__()
        self.register_buffer("mu", torch.linspace(0.5, 4.0, centres))
        self.filter = nn.Sequential(nn.Linear(centres, hidden), nn.Softplus(), nn.Linear(hidden, hidden), nn.Softplus())
        self.readout = nn.Linear(hidden, 1)

    def forward(self, positions):
        difference = positions[:, :, None] - positions[:, None]
        i, j = torch.triu_indices(positions.shape[1], positions.shape[1], 1)
        distance = (difference[:, i, j].square().sum(-1) + 1e-6).sqrt()
        basis = torch.exp(-2 * (distance[..., None] - self.mu).square())
        return self.readout(self.filter(basis)).sum((1, 2))


class Atomistic(nn.Module):
    def __init__(self, representation):
        super().__init__()
        self.representation = representation

    def forward(self, positions):
        positions = positions.clone().requires_grad_()
        energy = self.representation(positions)
        gradient, = torch.autograd.grad(energy.sum(), positions, create_graph=self.training)  # CUT
        return energy, -gradient


def reference_forces(positions):
    difference = positions[:, :, None] - positions[:, None]
    distance = (difference.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    pull = (1.5 - distance) * difference / distance
    return pull.sum(2)


def validate(model, batches=3):
    model.eval()  # CUT
    errors = []
    for _ in range(batches):
        positions = 2 * torch.randn(8, 5, 3)
        _, forces = model(positions)
        errors.append((forces - reference_forces(positions)).abs().mean().item())
    return sum(errors) / len(errors)


torch.manual_seed(0)
model = Atomistic(RadialNet())
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(120):
    positions = 2 * torch.randn(8, 5, 3)
    _, forces = model(positions)
    loss = nn.functional.mse_loss(forces, reference_forces(positions))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 60 == 59:
        print(step, loss.item(), "validation", validate(model))
