"""Traffic signs are learned, and from step 40 on against a sticker that an attacker improves by three gradient steps: the improved sticker is the result of an operation on the old one, and the second step asks it for a gradient.

Report: https://github.com/BorealisAI/advertorch/issues/49 (xadv.is_leaf becomes False, "'NoneType' object has no attribute 'clone'" when its grad is asked for; `return xadv.detach()` repairs it)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "dies-late", "kind": "nonleaf-grad", "cut_marker": "CUT", "step": 40,
    "set": "eleventh", "written": "2026-11-23",
}


class SignNet(nn.Module):
    def __init__(self, classes=6, width=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.classify = nn.Linear(width * 16, classes)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


class Attacker:
    def __init__(self, size=4, rate=0.1):
        self.size, self.rate = size, rate
        self.sticker = torch.full((3, size, size), 0.5)

    def stick(self, picture):
        corner = F.pad(self.sticker, (6, 16 - 6 - self.size, 6, 16 - 6 - self.size))
        free = F.pad(torch.zeros(self.size, self.size), (6, 16 - 6 - self.size, 6, 16 - 6 - self.size), value=1.0)
        return picture * free + corner

    def improve(self, net, picture, label, rounds=3):
        self.sticker.requires_grad_()
        for _ in range(rounds):
            loss = F.cross_entropy(net(self.stick(picture)), label)
            loss.backward()
            up = self.sticker.grad.sign()
            self.sticker = (self.sticker + self.rate * up).clamp(0, 1)  # CUT
        self.sticker = self.sticker.detach()


def signs(shapes, count=32):
    label = torch.randint(0, len(shapes), (count,))
    return (shapes[label] + 0.1 * torch.randn(count, 3, 16, 16)).clamp(0, 1), label


torch.manual_seed(0)
net, attacker, shapes = SignNet(), Attacker(), torch.rand(6, 3, 16, 16)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(80):
    picture, label = signs(shapes)
    if step >= 40:
        attacker.improve(net, picture, label)
        picture = attacker.stick(picture)
    loss = F.cross_entropy(net(picture), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
