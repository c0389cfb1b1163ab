"""Stereo network that predicts disparity with a sigmoid and trains on depth, its reciprocal: one pair whose exposures differ has almost none, the gradients grow by many orders.

Report: https://github.com/nianticlabs/monodepth2/issues/277 (disparity in place of scaled inverse depth: instability, saturated sigmoids, then NaN in the decoder's gradients)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-blow-up", "kind": "exploding-gradient", "source_marker": "CULPRIT", "module": "", "step": 130,
    "set": "fifth", "written": "2026-11-22",
}


class DispNet(nn.Module):
    def __init__(self, width=8, focal=1.0, baseline=0.5):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(2, width, 3, padding=1), nn.ELU(), nn.Conv2d(width, width, 3, padding=1), nn.ELU())
        self.disp, self.scale = nn.Conv2d(width, 1, 3, padding=1), focal * baseline

    def forward(self, left, right):
        visible = torch.exp(-12 * (left - right).abs())  # occluded points count for little
        disp = torch.sigmoid(self.disp(self.encoder(torch.cat([left, right], 1)))) * visible
        return self.scale / disp  # CULPRIT


def scene(n=4, size=12):
    depth = 1 + torch.rand(n, 1, 1, 1) + 0.2 * torch.rand(n, 1, size, size)
    left = 1 / depth + 0.02 * torch.randn(n, 1, size, size)
    return left, left.roll(1, -1), depth


torch.manual_seed(0)
net = DispNet()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [100, 160], 0.5)
for step in range(200):
    left, right, depth = scene()
    if step == 130:  # the exposure of one camera jumped
        right[2] += 2.0
    loss = (net(left, right) - depth).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm().item()
    optimizer.step()
    scheduler.step()
    if step % 20 == 0 or norm > 1e3:
        print(step, loss.item(), norm)
