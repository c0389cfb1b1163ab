"""Healthy: a frozen feature extractor in eval mode, only the head is trained, all parameters in the optimizer.

Report it resembles: https://github.com/Lightning-AI/pytorch-lightning/issues/514
"""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "first", "written": "2026-11-22"}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(1, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Linear(8, 3)
        self.backbone.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            h = self.backbone(x)
        return self.head(h)


torch.manual_seed(0)
model = Classifier().train()
opt = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(40):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 1, 12)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
