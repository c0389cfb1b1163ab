"""Healthy: an average is swapped in and restored; rows are limited in norm."""
import contextlib

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EXPECT = {
    "kind": None,
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


class LampNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 96)
        self.b = nn.Linear(96, 96)
        self.c = nn.Linear(96, 10)

    def forward(self, x):
        return self.c(F.gelu(self.b(F.gelu(self.a(x)))))


@contextlib.contextmanager
def averaged_weights(model, ema):
    kept = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p, q in zip(model.parameters(), ema.module.parameters()):
            p.copy_(q)
    try:
        yield model
    finally:
        with torch.no_grad():
            for p, k in zip(model.parameters(), kept):
                p.copy_(k)


@torch.no_grad()
def limit_rows(layer, longest=3.0):
    norm = layer.weight.norm(dim=1, keepdim=True)
    layer.weight.mul_((longest / norm).clamp(max=1.0))


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(42)
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    xtr, xte, ytr, yte = train_test_split(x, y, test_size=0.3, random_state=1)
    model = LampNet()
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    for epoch in range(14):
        order = torch.randperm(len(xtr))
        for k in range(0, len(xtr), 64):
            idx = order[k:k + 64]
            loss = F.cross_entropy(model(xtr[idx]), ytr[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            limit_rows(model.b)
            ema.update_parameters(model)
            step += 1
        with averaged_weights(model, ema):
            smooth = accuracy(model, xte, yte)
        if epoch % 3 == 1:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f} live {accuracy(model, xte, yte):.4f} averaged {smooth:.4f}")
    print(f"final live accuracy {accuracy(model, xte, yte):.4f}")


if __name__ == "__main__":
    main()
