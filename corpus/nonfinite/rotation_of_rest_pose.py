"""Body pose fitted to keypoints over axis-angle vectors: a tracker that lost the person is put back to the rest pose, where the angle is the root of zero.

Report: https://github.com/kornia/kornia/issues/611 (angle_axis_to_rotation_matrix has a NaN gradient for no rotation: theta = sqrt(theta2), with a mask behind it; kornia pull 3980)
"""
import torch
from torch import nn

EXPECT = {
    "class": "where-nan", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "rotate", "step": 90,
    "set": "sixth", "written": "2026-11-22",
}


class AxisAngle(nn.Module):
    eps = 1e-6

    def forward(self, vectors):
        theta2 = (vectors * vectors).sum(-1, keepdim=True)
        theta = torch.sqrt(theta2)  # CULPRIT
        axis = vectors / (theta + self.eps)
        x, y, z = axis.unbind(-1)
        zero = torch.zeros_like(x)
        cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).view(*x.shape, 3, 3)
        eye = torch.eye(3).expand_as(cross)
        angle = theta[..., None]
        normal = eye + angle.sin() * cross + (1 - angle.cos()) * cross @ cross
        return torch.where(theta2[..., None] > self.eps, normal, eye + cross)


class Body(nn.Module):
    def __init__(self, joints=5):
        super().__init__()
        self.rotate = AxisAngle()
        self.pose = nn.Parameter(0.3 * torch.randn(joints, 3))
        self.register_buffer("bones", torch.randn(joints, 3))

    def forward(self):
        turned = self.rotate(self.pose)
        world, point, points = torch.eye(3), torch.zeros(3), []
        for i in range(len(self.bones)):
            world = world @ turned[i]
            point = point + world @ self.bones[i]
            points.append(point)
        return torch.stack(points)

    @torch.no_grad()
    def to_rest(self):
        self.pose.zero_()


torch.manual_seed(0)
body = Body()
optimizer = torch.optim.Adam(body.parameters(), lr=2e-2)
target = body().detach()
for frame in range(140):
    target = target + 0.02 * torch.randn_like(target)
    visible = torch.rand(len(target)) > 0.1
    if frame == 90:
        body.to_rest()  # the tracker says that the person was lost
    weight = visible.float()[:, None]
    loss = (weight * (body() - target).square()).sum() / 5 + 1e-3 * body.pose.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if frame % 10 == 0 or not loss.isfinite():
        print(frame, loss.item())
