"""Handwritten digits with few labels: a student network learns from labels and from a slowly moving teacher.

The teacher is the network one would ship at the end.
Report: https://github.com/CuriousAI/mean-teacher/issues/9
"""
import copy

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "buffers-left-behind",
    "line": ("cause", "HERE"),
    "plain": "The student scores well, the averaged teacher is far worse at each evaluation.",
    "set": "twentysixth",
    "written": "2026-11-29",
}


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(block(1, 16), block(16, 32), nn.MaxPool2d(2), block(32, 32))
        self.head = nn.Linear(32, 10)

    def forward(self, images):
        return self.head(self.features(images).mean(dim=(2, 3)))


class Teacher:
    def __init__(self, student, decay=0.98):
        self.decay = decay
        self.net = copy.deepcopy(student).eval()
        for weight in self.net.parameters():
            weight.requires_grad_(False)

    @torch.no_grad()
    def follow(self, student):
        for mine, theirs in zip(self.net.parameters(), student.parameters()):  # HERE
            mine.lerp_(theirs, 1.0 - self.decay)

    @torch.no_grad()
    def __call__(self, images):
        return self.net(images)


def load(seed=0):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))
    labelled, unlabelled, test = order[:300], order[300:1300], order[1300:]
    return (images[labelled], labels[labelled]), images[unlabelled], (images[test], labels[test])


def jitter(images):
    return images + torch.randn_like(images)


@torch.no_grad()
def accuracy(net, images, labels):
    was_training = net.training
    net.eval()
    share = (net(images).argmax(1) == labels).float().mean().item()
    net.train(was_training)
    return share


def main():
    torch.manual_seed(1)
    labelled, unlabelled, test = load()
    student = DigitNet()
    teacher = Teacher(student)
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(*labelled), batch_size=30, shuffle=True, drop_last=True)
    other = DataLoader(TensorDataset(unlabelled), batch_size=64, shuffle=True, drop_last=True)
    for epoch in range(16):
        weight = 0.5 * min(1.0, epoch / 12)
        student.train()
        running = 0.0
        for (images, labels), (plain,) in zip(loader, other):
            scores = student(jitter(images))
            guess = student(jitter(plain))
            target = teacher(plain).softmax(1)
            loss = F.cross_entropy(scores, labels) + weight * F.mse_loss(guess.softmax(1), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            teacher.follow(student)
            running += loss.item()
        if epoch % 4 == 3:
            print(f"epoch {epoch}  loss {running / len(loader):.3f}  student {accuracy(student, *test):.3f}  "
                  f"teacher {accuracy(teacher.net, *test):.3f}")


if __name__ == "__main__":
    main()
