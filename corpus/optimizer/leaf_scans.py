"""The optimizer is built from the parameters that require grad while the body is still frozen; the body is unfrozen at
epoch 4 but was never handed to the optimizer, so its weights never move.

Report: Gradual-unfreezing threads and articles (discuss.pytorch.org/t/best-practice-for-freezing-layers/58156,
codegenes.net 'gradual unfreezing pytorch'): optimizer made with filter(lambda p: p.requires_grad, ...) must be
rebuilt after unfreezing
"""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "parameter-not-in-optimizer",
    "line": ("given", "HERE"),
    "plain": "Test accuracy 0.48 after 16 epochs (slow, head only) against 0.86 when the optimizer gets all parameters from the start; the body is bitwise unchanged after step 176, loss 1.71 against 0.77.",
    "set": "twentyseventh",
    "written": "2026-11-29",
}


random.seed(3)
np.random.seed(3)
torch.manual_seed(3)


class Body(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, 3, padding=1)
        self.c2 = nn.Conv2d(width, width, 3, padding=1)
        self.c3 = nn.Conv2d(width, 16, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        x = F.relu(self.c3(x))
        return x.mean((2, 3))


class LeafNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = Body()
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return self.head(self.body(x))


def vein_patches(n):
    """Striped patches, four directions: stands in for the big upstream corpus."""
    yy, xx = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    y = torch.randint(0, 4, (n,))
    ang = y.float() * (np.pi / 4)
    phase = torch.rand(n) * 6.28
    wave = ang.cos()[:, None, None] * xx + ang.sin()[:, None, None] * yy
    x = torch.sin(1.6 * wave + phase[:, None, None]) + 0.3 * torch.randn(n, 8, 8)
    return x[:, None], y


def upstream():
    net = LeafNet(4)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    x, y = vein_patches(2000)
    for i in range(120):
        idx = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"upstream loss {loss.item():.3f}")
    return net.body.state_dict()


def scans():
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32)[:, None] / 8 - 1
    y = torch.tensor(d.target)
    order = torch.randperm(len(x))
    cut = 1400
    tr, te = order[:cut], order[cut:]
    return TensorDataset(x[tr], y[tr]), (x[te], y[te])


@torch.no_grad()
def accuracy(net, data):
    net.eval()
    acc = (net(data[0]).argmax(1) == data[1]).float().mean().item()
    net.train()
    return acc


def main():
    net = LeafNet(10)
    net.body.load_state_dict(upstream())
    for p in net.body.parameters():
        p.requires_grad_(False)

    train, test = scans()
    loader = DataLoader(train, batch_size=32, shuffle=True)
    trainable = [p for p in net.parameters() if p.requires_grad]  # HERE
    opt = torch.optim.AdamW(trainable, lr=3e-3, weight_decay=1e-4)

    for epoch in range(16):
        if epoch == 4:
            for p in net.body.parameters():
                p.requires_grad_(True)
            for g in opt.param_groups:
                g["lr"] = 2e-3
        total = 0.0
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(xb), yb, label_smoothing=0.05)
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch:2d} loss {total / len(loader):.3f} test acc {accuracy(net, test):.3f}")


if __name__ == "__main__":
    main()
