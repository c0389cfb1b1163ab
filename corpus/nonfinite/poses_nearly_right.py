"""Camera poses of a scan are refined against measured relative rotations with the geodesic distance: the cosine is clamped to one, the value is fine, but once an edge is matched to the last bit the arc cosine is differentiated at one.

Report: https://github.com/eigenvivek/nanodrr/pull/31 (clamp the input of the geodesic distance to avoid infinite gradients; https://github.com/geoopt/geoopt/pull/79: AcosBackward gave NaN gradients, clamp slightly inside)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 30,
    "set": "eleventh", "written": "2026-11-23",
}


def hat(w):
    zero = torch.zeros_like(w[..., 0])
    rows = [zero, -w[..., 2], w[..., 1], w[..., 2], zero, -w[..., 0], -w[..., 1], w[..., 0], zero]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def so3_exp(w):
    return torch.linalg.matrix_exp(hat(w))


def geodesic_distance(a, b):
    trace = (a * b).sum((-2, -1))
    cos = ((trace - 1) / 2).clamp(-1.0, 1.0)
    return torch.acos(cos)  # CULPRIT


class PoseGraph(nn.Module):
    """Orientation of every camera as a rotation vector on top of a first guess."""

    def __init__(self, guess):
        super().__init__()
        self.register_buffer("guess", guess)
        self.update = nn.Parameter(0.01 * torch.randn(len(guess), 3))

    def forward(self, first, second):
        now = so3_exp(self.update) @ self.guess
        return now[first].transpose(-1, -2) @ now[second]


def scan(cameras=6):
    true = so3_exp(torch.randn(cameras, 3))
    first, second = torch.triu_indices(cameras, cameras, 1)
    return true, first, second, true[first].transpose(-1, -2) @ true[second]


torch.manual_seed(0)
true, first, second, measured = scan()
graph = PoseGraph(so3_exp(0.2 * torch.randn(len(true), 3)) @ true)
optimizer = torch.optim.Adam(graph.parameters(), lr=2e-2)
cooling = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
for step in range(400):
    error = geodesic_distance(graph(first, second), measured)
    loss = error.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    cooling.step()
    if step % 40 == 0:
        print(f"step {step:3d} mean error {loss.item():.6f} rad")
