"""Registration by a weighted Kabsch step in a compiled head: in one frame no keypoint is visible, the singular values are all zero and the derivative of the SVD divides by their differences.

Report: https://github.com/pytorch/pytorch/issues/49886 (also KinglittleQ/torch-batch-svd issue 5)
"""
import torch
from torch import nn

EXPECT = {
    "class": "edge-of-domain", "framework": "compile", "kind": "nonfinite-backward", "source_marker": "CULPRIT",
    "set": "third", "written": "2026-11-22",
}


class Keypoints(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 3 * n))

    def forward(self, x):
        return self.body(x).view(len(x), -1, 3)


def kabsch(points, model_points, visible):
    w = visible[..., None].float()
    centred = points - (w * points).sum(1, keepdim=True) / w.sum(1, keepdim=True).clamp(min=1)
    h = (w * centred).transpose(1, 2) @ model_points
    u, s, vh = torch.linalg.svd(h)  # CULPRIT
    return u @ vh


torch.manual_seed(0)
net = Keypoints()
align = torch.compile(kabsch, backend="eager")
opt = torch.optim.AdamW(net.parameters(), 1e-3)
model_points = torch.randn(6, 3)
model_points = model_points - model_points.mean(0)
for step in range(80):
    image, rotation = torch.randn(8, 16), torch.linalg.qr(torch.randn(8, 3, 3))[0]
    visible = torch.rand(8, 6) > 0.1
    if step == 2:
        visible[5] = False
    r = align(net(image), model_points.expand(8, 6, 3), visible)
    loss = (r - rotation).square().sum((1, 2)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if net.body[0].weight.isnan().any():
        print("reproduced at", step, loss.item())
        break
