"""Temporal proposals: the loss is balanced by the share of positives, and in one batch no proposal overlaps enough to be one.

Report: https://github.com/JJBOY/BMN-Boundary-Matching-Network/issues/22 (losses that become nan in the middle of training)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 187,
    "set": "fourth", "written": "2026-11-22",
}


class Proposals(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 16, 3, padding=1), nn.ReLU())
        self.score = nn.Conv1d(16, 1, 1)

    def forward(self, x):
        return torch.sigmoid(self.score(self.body(x)))[:, 0]


def balanced_loss(score, overlap, threshold=0.9):
    positive = (overlap > threshold).float()
    ratio = positive.numel() / positive.sum()  # CULPRIT
    high = 0.5 * ratio
    low = high / (ratio - 1)  # CULPRIT
    eps = 1e-6
    return -(high * positive * torch.log(score + eps) + low * (1 - positive) * torch.log(1 - score + eps)).mean()


torch.manual_seed(0)
model = Proposals()
opt = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
for step in range(260):
    overlap = torch.rand(4, 20)
    if step == 187:  # short videos
        overlap *= 0.8
    x = torch.randn(4, 4, 20) + overlap[:, None]
    loss = balanced_loss(model(x), overlap)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(step, round(loss.item(), 4))
