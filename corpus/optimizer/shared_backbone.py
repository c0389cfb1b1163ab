"""Trains a convolutional digit network, then adds a second head for inverted dim digits on the frozen backbone; the first head is ruined while only the new head should change.

Report: https://github.com/kdexd/virtex/issues/16 (linear evaluation with a frozen backbone called .train(), so the BatchNorm running averages of the backbone kept changing; the backbone was not really frozen)
What is seen: no parameter of the backbone changes in the second phase, yet the accuracy of the first head falls from 0.99 to 0.42,
because the running mean and variance of the frozen BatchNorm layers move to the new images.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "framework": "plain", "kind": "frozen-buffer-changes", "line": ("cause", "CAUSE"),
    "what": "the frozen backbone is put in train mode, so its BatchNorm running statistics drift to the new data; keep the backbone in eval mode while the new head is trained",
    "set": "nineteenth", "written": "2026-11-27",
}

torch.manual_seed(3)
digits = load_digits()
X = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
Y = torch.tensor(digits.target)
order = torch.randperm(len(X))
X, Y = X[order], Y[order]
train_x, train_y, test_x, test_y = X[:1400], Y[:1400], X[1400:], Y[1400:]


def dim(x):
    return 2.0 - 0.4 * x


class TwoHeadNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
        )
        self.heads = nn.ModuleDict({"digit": nn.Linear(512, 10), "parity": nn.Linear(512, 2)})

    def forward(self, x, head):
        return self.heads[head](self.backbone(x))


net = TwoHeadNet()


@torch.no_grad()
def accuracy(head, x, y):
    net.eval()
    return (net(x, head).argmax(1) == y).float().mean().item()


def batches(steps, size=64):
    for _ in range(steps):
        idx = torch.randint(0, len(train_x), (size,))
        yield train_x[idx], train_y[idx]


opt = torch.optim.Adam(net.parameters(), lr=2e-3)
net.train()
for i, (xb, yb) in enumerate(batches(120)):
    loss = F.cross_entropy(net(xb, "digit"), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 40 == 0:
        print("digits", i, round(loss.item(), 4))
print("digit accuracy after phase 1:", round(accuracy("digit", test_x, test_y), 3))

for p in net.backbone.parameters():
    p.requires_grad = False  # OTHER
opt = torch.optim.Adam(net.heads["parity"].parameters(), lr=2e-3)
for epoch in range(4):
    net.train()  # CAUSE
    for xb, yb in batches(40):
        loss = F.cross_entropy(net(dim(xb), "parity"), yb % 2)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"parity epoch {epoch} loss {loss.item():.4f} acc {accuracy('parity', dim(test_x), test_y % 2):.3f}",
          f"digit acc {accuracy('digit', test_x, test_y):.3f}")
