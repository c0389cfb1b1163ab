"""Residual convnet; activation noise injected in the second half of training."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "CULPRIT", "step": 220,
    "set": "late_longer", "written": "2026-11-25",
}


class NoisyReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.sigma = 0.0

    def forward(self, x):
        out = torch.relu(x)
        if self.training and self.sigma > 0:
            out += self.sigma * torch.randn_like(out)  # CULPRIT
        return out


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.c1 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.b1 = nn.BatchNorm2d(ch)
        self.c2 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.b2 = nn.BatchNorm2d(ch)
        self.act = NoisyReLU()

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        y = self.b2(self.c2(y))
        return self.act(x + y)


class ResNet(nn.Module):
    def __init__(self, ch=40):
        super().__init__()
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.stage1 = ResBlock(ch)
        self.stage2 = ResBlock(ch)
        self.fc = nn.Linear(ch, 10)

    def forward(self, x):
        x = self.stage2(self.stage1(self.stem(x)))
        return self.fc(x.mean(dim=(2, 3)))


def noise_schedule(net, step, start=220, sigma=0.1):
    net.stage2.act.sigma = sigma if step >= start else 0.0


def run():
    torch.manual_seed(4)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
    labels = torch.tensor(digits.target)
    net = ResNet().train()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    began = time.time()
    for step in range(400):
        noise_schedule(net, step)
        pick = torch.randint(0, 1500, (64,))
        pred = net(images[pick])
        loss = F.cross_entropy(pred, labels[pick], label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 49:
            print(f"{step:4d} {loss.item():.4f} {(time.time() - began) / (step + 1) * 1e3:.1f} ms/step")


run()
