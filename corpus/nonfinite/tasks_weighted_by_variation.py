"""Depth network whose losses are weighted by their coefficient of variation: the mask of one term is empty from the first step of a new sequence, its mean is zero and the ratio to it 0 / 0.

Report: https://github.com/rickgroen/cov-weighting/issues/3 (losses become NaN after an epoch: a loss that approaches zero is divided by its running mean)
"""
import torch
from torch import nn

EXPECT = {
    "class": "zero-by-zero", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 120,
    "set": "sixth", "written": "2026-11-22",
}


class CoVWeighting:
    """Weights from the running mean and deviation of loss ratios, started anew for each sequence."""

    def __init__(self, count):
        self.count = count
        self.restart()

    def restart(self):
        self.t = 0
        self.mean_loss = torch.zeros(self.count)
        self.mean_ratio = torch.zeros(self.count)
        self.m2 = torch.zeros(self.count)

    @torch.no_grad()
    def weights(self, losses):
        previous = self.mean_loss if self.t else losses.clone()
        ratio = losses / previous  # CULPRIT
        self.t += 1
        rate = 1 / self.t
        new_mean = (1 - rate) * self.mean_ratio + rate * ratio
        self.m2 += (ratio - self.mean_ratio) * (ratio - new_mean)
        self.mean_ratio = new_mean
        self.mean_loss = (1 - rate) * self.mean_loss + rate * losses
        if self.t < 3:
            return torch.full((self.count,), 1 / self.count) + 0 * self.mean_ratio
        spread = (self.m2 / self.t).sqrt() / self.mean_ratio
        return spread / spread.sum()

    def __call__(self, losses):
        stacked = torch.stack(losses)
        return (self.weights(stacked.detach()) * stacked).sum()


class DepthNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ELU())
        self.decoder = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ELU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return nn.functional.softplus(self.decoder(self.encoder(x)))


def terms(depth, target, image, lidar):
    photometric = (depth - target).abs().mean()
    edges = (-image.mean(1, keepdim=True).diff(dim=-1).abs()).exp()
    smooth = (depth.diff(dim=-1).abs() * edges).mean()
    sparse = ((depth - target).square() * lidar).sum() / lidar.sum().clamp(min=1)
    return [photometric, smooth, sparse]


torch.manual_seed(0)
net, balance = DepthNet(), CoVWeighting(3)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(160):
    image = torch.rand(4, 3, 12, 12)
    target = 1 + image.sum(1, keepdim=True)
    lidar = (torch.rand_like(target) < 0.1).float()
    if step % 40 == 0:
        balance.restart()
    if step >= 120:
        lidar = torch.zeros_like(target)  # a drive without the scanner
    loss = balance(terms(net(image), target, image, lidar))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
