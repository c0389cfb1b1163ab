"""Healthy: gradual thawing, a frozen teacher, set_grad_enabled restored."""
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


torch.manual_seed(31)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(64, 96), nn.ReLU()),
                nn.Sequential(nn.Linear(96, 96), nn.ReLU()),
                nn.Sequential(nn.Linear(96, 64), nn.ReLU()),
            ]
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def evaluate(model, x, y):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        return (model(x).argmax(1) == y).float().mean().item()
    finally:
        torch.set_grad_enabled(before)


def pretrain(model, x, y, steps):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        rows = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(model(x[rows]), y[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()


def thaw(model, count):
    for i, block in enumerate(reversed(model.blocks)):
        block.requires_grad_(i < count)


def main():
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x))
    train, test = order[:1300], order[1300:]
    model = Blocks()
    pretrain(model, x[train], y[train], 200)
    print(f"source accuracy {evaluate(model, x[test], y[test]):.3f}")

    teacher = copy.deepcopy(model).requires_grad_(False).eval()
    turned = x.view(-1, 8, 8).transpose(1, 2).flip(2).reshape(-1, 64)
    print(f"turned, before {evaluate(model, turned[test], y[test]):.3f}")
    opt = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    for step in range(400):
        if step % 100 == 0:
            thaw(model, step // 100)
            print(f"step {step:3d}  accuracy {evaluate(model, turned[test], y[test]):.3f}")
        rows = train[torch.randint(0, len(train), (64,))]
        logits = model(turned[rows])
        soft = F.softmax(teacher(x[rows]) / 2, dim=1)
        loss = F.cross_entropy(logits, y[rows])
        loss = loss + F.kl_div(F.log_softmax(logits / 2, dim=1), soft, reduction="batchmean")
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"turned, after {evaluate(model, turned[test], y[test]):.3f}")


if __name__ == "__main__":
    main()
