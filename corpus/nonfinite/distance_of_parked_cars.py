"""Trajectory model with a loss on the distance covered: a car that does not move covers none, and the square root has no slope there, though the car is masked out afterwards.

Report: https://github.com/pytorch/pytorch/issues/93998 (late masking puts a nan into the gradient; there of atan2)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 211,
    "set": "fourth", "written": "2026-11-22",
}


class Tracker(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.out = nn.GRU(2, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, past, speed):
        _, h = self.encode(past)
        return self.out(h[0]) * speed[:, None]


torch.manual_seed(0)
model = Tracker()
opt = torch.optim.AdamW(model.parameters(), 2e-3)
for step in range(300):
    direction = 6.28 * torch.rand(16)
    speed = 0.5 + torch.rand(16)
    if step == 211:
        speed[3] = 0.0  # parked
    velocity = speed[:, None] * torch.stack([direction.cos(), direction.sin()], 1)
    past = velocity[:, None] * torch.arange(-4.0, 0.0)[None, :, None] + 0.05 * torch.randn(16, 4, 2)
    moved = model(past, speed)
    distance = moved.square().sum(1).sqrt()  # CULPRIT
    moving = speed > 0.1
    error = (distance - speed).abs()
    loss = (error * moving).sum() / moving.sum() + nn.functional.mse_loss(moved, velocity)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
