"""Small CNN with gradient accumulation; in the second stage embeddings are spread by their angles, the angle of each with itself included, where acos is vertical."""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "step": 226, "counted": "optimizer updates",
    "set": "late", "written": "2026-11-22",
}


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 12, 3), nn.ReLU())
        self.project, self.classify = nn.Linear(12, 8), nn.Linear(8, 4)

    def forward(self, x):
        z = nn.functional.normalize(self.project(self.features(x).mean((2, 3))))
        return z, self.classify(4 * z)


def spread(z):
    cosine = (z @ z.t()).clamp(-1, 1)
    angle = torch.acos(cosine)  # CULPRIT
    return 1 - angle.mean() / 3.1416


def batch():
    y = torch.randint(0, 4, (12,))
    x = 0.4 * torch.randn(12, 1, 10, 10)
    x[:, 0, 3:7] += y[:, None, None] * 0.5
    return x, y


torch.manual_seed(0)
net = Embedder()
opt = torch.optim.SGD(net.parameters(), 2e-2, momentum=0.9)
accumulate, first_stage, updates = 3, 226, 0
for micro in range(3 * 270):
    x, y = batch()
    z, logits = net(x)
    loss = nn.functional.cross_entropy(logits, y)
    if updates >= first_stage:
        loss = loss + 0.2 * spread(z)
    (loss / accumulate).backward()
    if (micro + 1) % accumulate == 0:
        opt.step()
        opt.zero_grad()
        updates += 1
        if updates % 30 == 0:
            print(updates, round(loss.item(), 4))
