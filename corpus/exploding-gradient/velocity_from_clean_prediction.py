"""Flow matching of two-dimensional points with a network that predicts the clean point: the loss on velocities divides by one minus the time, and with the schedule of the second stage times come very near to one.

Report: https://github.com/LTH14/JiT/issues/13 (prediction of x with a loss on v = (data - x_t) / (1 - t): unstable where t is near one, later NaN)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-blow-up", "kind": "exploding-gradient", "source_marker": "BORN", "step": 80,
    "set": "ninth", "written": "2026-11-23",
}


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.register_buffer("frequency", 2.0 ** torch.arange(4) * 3.14159)
        self.inlet = nn.Linear(2 + 8, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(3))
        self.outlet = nn.Linear(width, 2)

    def forward(self, x, t):
        angle = t * self.frequency
        h = self.inlet(torch.cat([x, angle.sin(), angle.cos()], 1))
        for block in self.blocks:
            h = h + block(h)
        return self.outlet(h)


class FlowLoss(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.late = net, False

    def times(self, n):
        t = torch.randn(n, 1).sigmoid() if not self.late else 1 - torch.rand(n, 1).pow(12)
        return t.clamp(max=1 - 1e-6)

    def forward(self, data):
        noise, t = torch.randn_like(data), self.times(len(data))
        noisy = t * data + (1 - t) * noise
        clean = self.net(noisy, t)
        velocity = (clean - noisy) / (1 - t)  # BORN
        return (velocity - (data - noise)).square().mean()


def moons(n):
    angle = 3.14159 * torch.rand(n)
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2)


torch.manual_seed(0)
objective = FlowLoss(Denoiser())
optimizer = torch.optim.Adam(objective.parameters(), lr=1e-3, betas=(0.9, 0.95))
for step in range(120):
    objective.late = step >= 80
    loss = objective(moons(256))
    optimizer.zero_grad()
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in objective.parameters()]).norm()
    optimizer.step()
    if step % 10 == 0 or 78 <= step <= 86:
        print(step, loss.item(), "gradient", norm.item())
