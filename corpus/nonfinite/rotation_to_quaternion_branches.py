"""Pose network: a rotation matrix is turned into a quaternion by four formulas, the unused ones take the root of zero for a planar rotation.

Report: https://github.com/kornia/kornia/issues/1653
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "class": "where-nan", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "convert",
    "set": "second", "written": "2026-11-22",
}


class ToQuaternion(nn.Module):
    def forward(self, m):
        m00, m11, m22 = m[:, 0, 0], m[:, 1, 1], m[:, 2, 2]
        t = torch.stack([1 + m00 + m11 + m22, 1 + m00 - m11 - m22, 1 - m00 + m11 - m22, 1 - m00 - m11 + m22], 1)
        s = torch.sqrt(t) * 2  # CULPRIT
        q0 = torch.stack([s[:, 0] / 4, (m[:, 2, 1] - m[:, 1, 2]) / s[:, 0], (m[:, 0, 2] - m[:, 2, 0]) / s[:, 0], (m[:, 1, 0] - m[:, 0, 1]) / s[:, 0]], 1)
        q3 = torch.stack([(m[:, 1, 0] - m[:, 0, 1]), (m[:, 0, 2] + m[:, 2, 0]), (m[:, 1, 2] + m[:, 2, 1]), s[:, 3].square() / 4], 1)
        return torch.where((t[:, 0] > 0.5)[:, None], q0, nn.functional.normalize(q3, dim=1))


class Pose(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.convert = nn.Parameter(torch.ones(())), ToQuaternion()

    def forward(self, angles):
        a, b = (angles * self.scale).unbind(1)
        zero, one = torch.zeros_like(a), torch.ones_like(a)
        rz = torch.stack([a.cos(), -a.sin(), zero, a.sin(), a.cos(), zero, zero, zero, one], 1).view(-1, 3, 3)
        rx = torch.stack([one, zero, zero, zero, b.cos(), -b.sin(), zero, b.sin(), b.cos()], 1).view(-1, 3, 3)
        return self.convert(rx @ rz)


g = torch.Generator().manual_seed(6)
angles = 0.3 + torch.rand(120, 2, generator=g)
angles[77, 0] = 0.0  # turns about one axis only
torch.manual_seed(0)
pose = Pose()
opt = torch.optim.SGD(pose.parameters(), 1e-2)
target = ToQuaternion()
for step, (batch,) in enumerate(DataLoader(TensorDataset(angles), batch_size=4)):
    want = torch.stack([torch.ones(4), *(0.3 * batch.T), torch.zeros(4)], 1)
    loss = nn.functional.mse_loss(pose(batch), nn.functional.normalize(want, dim=1))
    opt.zero_grad()
    loss.backward()
    if pose.scale.grad.isnan():
        print("reproduced at", step, loss.item())
        break
    opt.step()
