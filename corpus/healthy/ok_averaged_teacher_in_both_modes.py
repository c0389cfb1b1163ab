"""A mean teacher: its weights follow the student in each step, through data. It starts in eval mode; after the first
validation it is in train mode like the student, with statistics of its own, as mean teachers often are. A frozen
embedding with dropout in front of both changes its mode too: dropout is wanted there while the heads learn."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}


class MeanTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Sequential(nn.Linear(64, 48), nn.LayerNorm(48), nn.Tanh(), nn.Dropout(0.1))
        self.student = nn.Sequential(nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
        self.teacher = copy.deepcopy(self.student)
        for part in (self.embedding, self.teacher):
            for p in part.parameters():
                p.requires_grad = False

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher(self.embedding(x + 0.05 * torch.randn_like(x))).softmax(1)
        return self.student(self.embedding(x)), target

    def follow(self):
        for mine, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            mine.data.mul_(0.99).add_(new.data, alpha=0.01)


def main():
    torch.manual_seed(5)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    model = MeanTeacher()
    model.teacher.eval()
    model.embedding.eval()
    optimizer = torch.optim.Adam(model.student.parameters(), lr=2e-3)
    for step in range(160):
        rows = torch.randint(0, len(x), (48,))
        out, target = model(x[rows])
        loss = F.cross_entropy(out, y[rows]) + F.mse_loss(out.softmax(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.follow()
        if step % 40 == 39:
            model.eval()
            with torch.no_grad():
                print(f"{(model.student(model.embedding(x)).argmax(1) == y).float().mean():.3f}")
            model.train()


if __name__ == "__main__":
    main()
