"""Trains embeddings of digits with an additive-margin cosine loss; the class centres live in the loss module, whose
parameters were never given to the optimizer, so the centres stay at their random initial values (change exactly 0; the
last epoch's loss is 0.76 against 0.18 with them in the optimizer).

Report: https://github.com/4uiiurz1/pytorch-adacos/issues/10 (no optimizer for metric_fc: the centres self.W are not
updated and only random weights stay in the classification layer)
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "plain", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "CAUSE"),
    "what": "The parameters of the margin loss (the class centres) are not passed to the optimizer, so they stay random.",
    "set": "twentysecond", "written": "2026-11-28",
}


class AddMarginProduct(nn.Module):
    def __init__(self, dim, classes, s=16.0, m=0.1):
        super().__init__()
        self.s, self.m = s, m
        self.W = nn.Parameter(torch.empty(classes, dim))
        nn.init.xavier_uniform_(self.W)

    def forward(self, emb, label=None):
        cos = F.linear(F.normalize(emb), F.normalize(self.W))
        if label is None:
            return cos
        return self.s * (cos - self.m * F.one_hot(label, cos.size(1)))


class Backbone(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
        self.fc = nn.Linear(32 * 4, dim)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


def evaluate(backbone, metric_fc, x, y):
    backbone.eval()
    with torch.no_grad():
        acc = (metric_fc(backbone(x)).argmax(1) == y).float().mean().item()
    backbone.train()
    return acc


def main():
    torch.manual_seed(1)
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(d.target)
    loader = DataLoader(TensorDataset(x[:1300], y[:1300]), batch_size=64, shuffle=True, drop_last=True)

    backbone = Backbone(dim=3)
    metric_fc = AddMarginProduct(3, 10)
    w0 = metric_fc.W.detach().clone()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(backbone.parameters(), lr=3e-3, weight_decay=1e-4)  # CAUSE

    for epoch in range(12):
        total = 0.0
        for xb, yb in loader:
            loss = criterion(metric_fc(backbone(xb), yb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.3f} test acc {evaluate(backbone, metric_fc, x[1300:], y[1300:]):.3f}")
    print(f"centres moved by {(metric_fc.W - w0).abs().max().item():.4f}")


if __name__ == "__main__":
    main()
