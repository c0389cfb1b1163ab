"""Gamma correction x ** (1/2.4) of a rendered image whose empty rays are black (x * 0): the slope at zero is infinite."""

import torch
from torch import nn

EXPECT = {"kind": "nonfinite-backward", "line": ("cause", "CULPRIT"), "module": "tone"}


class SRGB(nn.Module):
    def forward(self, linear):
        return 1.055 * linear ** (1 / 2.4) - 0.055  # CULPRIT


class Renderer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp, self.tone = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3)), SRGB()

    def forward(self, rays, occupied):
        return self.tone(torch.sigmoid(self.mlp(rays)) * occupied)


if __name__ == "__main__":
    torch.manual_seed(0)
    nerf = Renderer()
    opt = torch.optim.Adam(nerf.parameters(), lr=5e-4)
    for i in range(3):
        rays, colour, occupied = torch.rand(32, 3), torch.rand(32, 3), (torch.rand(32, 1) < 0.8).float()
        loss = (nerf(rays, occupied) - colour).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print({"reproduced": bool(nerf.mlp[0].weight.isnan().any())})
