"""Image as a deep sine network: the frequency of thirty belongs with weights that are smaller by it, here the hidden layers have the frequency and the ordinary initialisation.

Report: https://github.com/lucidrains/siren-pytorch/pull/2 (only the first layer may have w0 = 30; the initialisation in issue 1 there)
"""
import torch
from torch import nn

EXPECT = {
    "class": "exploding-rows", "kind": "exploding-gradient", "source_marker": "CULPRIT",
    "set": "seventh", "written": "2026-11-22",
}


class SineLayer(nn.Module):
    def __init__(self, inputs, outputs, w0=30.0):
        super().__init__()
        self.linear, self.w0 = nn.Linear(inputs, outputs), w0

    def forward(self, x):
        return torch.sin(self.w0 * self.linear(x))  # CULPRIT


class Siren(nn.Module):
    def __init__(self, hidden=64, depth=10):
        super().__init__()
        self.layers = nn.Sequential(SineLayer(2, hidden), *[SineLayer(hidden, hidden) for _ in range(depth - 1)])
        self.last = nn.Linear(hidden, 1)

    def forward(self, points):
        return self.last(self.layers(points)).squeeze(-1)


def picture(size=24):
    axis = torch.linspace(-1, 1, size)
    points = torch.cartesian_prod(axis, axis)
    return points, torch.sin(5 * points[:, 0]) * torch.cos(3 * points[:, 1])


torch.manual_seed(0)
net = Siren()
points, values = picture()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
for step in range(60):
    pick = torch.randint(0, len(points), (128,))
    loss = nn.functional.mse_loss(net(points[pick]), values[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), net.layers[0].linear.weight.grad.norm().item())
