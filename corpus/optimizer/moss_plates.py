"""The averaged teacher takes over the student's parameters but not its BatchNorm buffers (running mean 0, variance 1
for ever), so its targets are wrong and spoil the student once the consistency term sets in after 200 steps.

Report: https://github.com/CuriousAI/mean-teacher/issues/9, https://github.com/FlyreelAI/sesemi/issues/36,
https://github.com/pytorch/ignite/issues/2590
"""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "kind": "buffers-left-behind",
    "line": ("cause", "HERE"),
    "plain": "with: teacher accuracy 0.18 to 0.29 throughout, student 0.92 at step 200 falls to between 0.32 and 0.88 afterwards (0.32 at the end); buffers copied too: both 0.93",
    "set": "twentyeighth",
    "written": "2026-11-29",
}


torch.manual_seed(3)


class PlateNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.head = nn.Linear(32 * 4, classes)

    def forward(self, x):
        return self.head(self.stem(x).flatten(1))


class MeanTeacher:
    def __init__(self, student, decay=0.98):
        self.student = student
        self.teacher = copy.deepcopy(student)
        self.teacher.eval()
        for p in self.teacher.parameters():
            p.requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, step):
        d = min(self.decay, 1 - 1 / (step + 2))
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):  # HERE
            t.mul_(d).add_(s, alpha=1 - d)

    @torch.no_grad()
    def targets(self, x):
        return F.softmax(self.teacher(x), dim=-1)


def jitter(x, gen):
    dx, dy = torch.randint(-1, 2, (2,), generator=gen).tolist()
    x = torch.roll(x, shifts=(dx, dy), dims=(2, 3))
    return x + 0.8 * torch.randn(x.shape, generator=gen)


def consistency_weight(step, begin=200, ramp=80, top=12.0):
    if step < begin:
        return 0.0
    return top * min(1.0, (step - begin) / ramp)


@torch.no_grad()
def accuracy(net, x, y):
    was = net.training
    net.eval()
    acc = (net(x).argmax(-1) == y).float().mean().item()
    net.train(was)
    return acc


def main(steps=520):
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    y = torch.tensor(digits.target)
    gen = torch.Generator().manual_seed(4)
    order = torch.randperm(len(x), generator=gen)
    x, y = x[order], y[order]
    lab_x, lab_y = x[:150], y[:150]
    pool, test_x, test_y = x[150:1200], x[1200:], y[1200:]

    student = PlateNet()
    mean_teacher = MeanTeacher(student)
    opt = torch.optim.Adam(student.parameters(), lr=2e-3)
    for step in range(steps):
        a = torch.randint(0, len(lab_x), (32,), generator=gen)
        b = torch.randint(0, len(pool), (64,), generator=gen)
        supervised = F.cross_entropy(student(jitter(lab_x[a], gen)), lab_y[a])
        loss = supervised
        w = consistency_weight(step)
        agree = torch.zeros(())
        if w > 0:
            probs = F.softmax(student(jitter(pool[b], gen)), dim=-1)
            agree = F.mse_loss(probs, mean_teacher.targets(jitter(pool[b], gen)))
            loss = loss + w * agree
        opt.zero_grad()
        loss.backward()
        opt.step()
        mean_teacher.update(step)
        if (step + 1) % 40 == 0:
            print(f"step {step + 1:3d} sup {supervised.item():.3f} agree {agree.item():.4f} "
                  f"student {accuracy(student, test_x, test_y):.3f} "
                  f"teacher {accuracy(mean_teacher.teacher, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
