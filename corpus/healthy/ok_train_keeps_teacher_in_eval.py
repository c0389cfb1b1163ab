"""Distillation in which train() of the model is overridden, so that its teacher stays in eval mode after validations."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}


class Distiller(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.teacher, self.student = teacher.requires_grad_(False), nn.Sequential(nn.Linear(64, 24), nn.BatchNorm1d(24),
                                                                                  nn.ReLU(), nn.Linear(24, 10))
        self.teacher.eval()

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher(x).softmax(1)
        return F.cross_entropy(self.student(x), target)


def main():
    torch.manual_seed(3)
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    teacher = nn.Sequential(nn.Linear(64, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 10))
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for batch in torch.randperm(len(x)).split(32):
        loss = F.cross_entropy(teacher(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model = Distiller(teacher)
    optimizer = torch.optim.Adam(model.student.parameters(), lr=3e-3)
    for _ in range(4):
        model.train()
        for batch in torch.randperm(len(x)).split(48):
            loss = model(x[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            print(f"{loss.item():.3f} {(model.student(x).argmax(1) == y).float().mean():.3f}")


if __name__ == "__main__":
    main()
