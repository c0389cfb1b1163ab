"""Surface normals from a learned weighted covariance of each point's neighbourhood (PCPNet / DeepFit style).

Source: https://github.com/pytorch/pytorch/issues/23133 (same mechanism: https://github.com/pytorch/pytorch/issues/49886)
Plain PyTorch 2.13: loss and gradients are fine for hundreds of steps; the step after, torch.linalg.eigh raises because
its input is NaN.
"""
import torch
from torch import nn

EXPECT = {
    "class": "a", "kind": "nonfinite-backward", "node": "LinalgEighBackward0", "module": "frame",
    "source_marker": "CULPRIT", "step": 287,
    "plain": {"outcome": "raises", "match": "eigh"},
    "set": "thirteenth", "written": "2026-11-25",
}

K, BATCH = 12, 16


class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, offsets):
        feature = torch.cat([offsets, offsets.square().sum(-1, keepdim=True)], -1)
        return torch.sigmoid(self.net(feature))


class Frame(nn.Module):
    def forward(self, offsets, weight):
        scatter = (weight * offsets).transpose(1, 2) @ offsets / weight.sum(1, keepdim=True)
        values, axes = torch.linalg.eigh(scatter)  # CULPRIT
        return axes[..., 0], values[..., 0]


class NormalNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights, self.frame = Weights(), Frame()

    def forward(self, points):
        offsets = points[:, 1:] - points[:, :1]
        return self.frame(offsets, self.weights(offsets))


def make_scan(count, generator):
    """Each point with its neighbours inside a fixed radius; short neighbourhoods are filled up with the point itself."""
    normal = nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=1)
    centre = torch.rand(count, 1, 3, generator=generator) * 10
    spread = torch.randn(count, K, 3, generator=generator)
    spread = spread - 0.9 * (spread * normal[:, None]).sum(-1, keepdim=True) * normal[:, None]
    spread[:, 9:] *= 1 + 2 * torch.rand(count, 3, 1, generator=generator)
    found = torch.randint(5, K + 1, (count,), generator=generator)
    found[4321] = 0
    spread = spread * (torch.arange(K) < found[:, None]).unsqueeze(-1)
    return torch.cat([centre, centre + spread], 1), normal


def main():
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(SEED)
    points, normals = make_scan(6400, generator)
    order = torch.randperm(len(points), generator=generator)
    model = NormalNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, len(points) // BATCH)
    for step, rows in enumerate(order.split(BATCH)):
        normal, flatness = model(points[rows])
        angle = 1 - (normal * normals[rows]).sum(1).square()
        loss = angle.mean() + 0.01 * flatness.abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


SEED = 30

if __name__ == "__main__":
    main()
