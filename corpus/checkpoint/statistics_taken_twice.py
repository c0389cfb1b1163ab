"""Face network whose stages are checkpointed when the crops get larger: each stage has batch norms, and the recomputation in backward moves their running statistics a second time.

Report: https://github.com/pytorch/pytorch/issues/96136 (checkpoint updates the statistics of batch norm twice per step)
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "late-checkpoint", "kind": "checkpoint-side-effect", "region_marker": "REGION", "step": 40,
    "set": "eighth", "written": "2026-11-22",
}


class Stage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(x)))


class FaceNet(nn.Module):
    def __init__(self, people=8, dim=16):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.stages = nn.ModuleList([Stage(8, 12), Stage(12, 16)])
        self.embed = nn.Linear(16, dim)
        self.centres = nn.Parameter(torch.randn(people, dim))
        self.use_checkpoint = False

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages:
            if self.use_checkpoint and self.training:
                x = checkpoint(stage, x, use_reentrant=False)  # REGION
            else:
                x = stage(x)
        x = F.normalize(self.embed(x.mean((2, 3))), dim=1)
        return 10 * x @ F.normalize(self.centres, dim=1).T


def crops(patterns, size, n=24):
    who = torch.randint(0, len(patterns), (n,))
    image = F.interpolate(patterns[who][:, None], size=(size, size), mode="bilinear", align_corners=False)
    return image + 0.5 * torch.randn_like(image), who


torch.manual_seed(0)
patterns = torch.randn(8, 8, 8)
net = FaceNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
for step in range(90):
    size = 16 if step < 40 else 24
    net.use_checkpoint = size > 16
    image, who = crops(patterns, size)
    loss = F.cross_entropy(net(image), who)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        net.eval()
        with torch.no_grad():
            image, who = crops(patterns, size, 64)
            right = (net(image).argmax(1) == who).float().mean().item()
        net.train()
        print(step, loss.item(), right)
