"""Point clouds in the manner of PointNet++ with an own Function for grouping neighbours: a point is in the groups of several centres, and backward writes the gradient of each group over that of the one before, where it should add.

Report: https://github.com/pytorch/pytorch/issues/1631 (gather with repeated indices: the gradient of one of the copies only)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "custom-function", "kind": "wrong-backward", "apply_marker": "APPLY",
    "set": "tenth", "written": "2026-11-23",
}


class GroupPoints(torch.autograd.Function):
    """Features (b, n, c) and indices (b, m, k) to the features of groups (b, m, k, c)."""

    @staticmethod
    def forward(ctx, features, index):
        ctx.save_for_backward(index)
        ctx.shape = features.shape
        batch = torch.arange(len(features))[:, None, None]
        return features[batch, index]

    @staticmethod
    def backward(ctx, grad_out):
        (index,) = ctx.saved_tensors
        grad = grad_out.new_zeros(ctx.shape)
        batch = torch.arange(len(grad))[:, None, None]
        grad[batch, index] = grad_out
        return grad, None


class SetAbstraction(nn.Module):
    def __init__(self, inputs, outputs, centres, neighbours=8):
        super().__init__()
        self.centres, self.neighbours = centres, neighbours
        self.mlp = nn.Sequential(nn.Linear(inputs + 3, outputs), nn.ReLU(), nn.Linear(outputs, outputs))

    def forward(self, xyz, features):
        centres = xyz[:, : self.centres]
        index = torch.cdist(centres, xyz).topk(self.neighbours, largest=False).indices
        grouped = GroupPoints.apply(features, index)  # APPLY
        batch = torch.arange(len(xyz))[:, None, None]
        near = torch.cat([xyz[batch, index] - centres[:, :, None], grouped], 3)
        return centres, self.mlp(near).max(2).values


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.inlet = nn.Linear(3, 12)
        self.first, self.second = SetAbstraction(12, 24, 32), SetAbstraction(24, 48, 12)
        self.out = nn.Linear(48, classes)

    def forward(self, xyz):
        features = torch.relu(self.inlet(xyz))
        centres, features = self.first(xyz, features)
        _, features = self.second(centres, features)
        return self.out(features.max(1).values)


def bodies(n, points=64):
    """Balls, boxes and rods."""
    kind = torch.randint(0, 3, (n,))
    raw = torch.randn(n, points, 3)
    ball = F.normalize(raw, dim=2)
    box = raw.clamp(-0.7, 0.7)
    rod = raw * torch.tensor([0.1, 0.1, 1.0])
    xyz = torch.stack([ball, box, rod])[kind, torch.arange(n)]
    return xyz + 0.02 * torch.randn_like(xyz), kind


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(60):
    xyz, kind = bodies(16)
    loss = F.cross_entropy(net(xyz), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
