"""Two optimizers, one for the backbone and one for the head: the backbone's rate is divided by the number of samples twice."""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "update-too-small", "framework": "plain", "kind": "update-too-small", "line": ("optimizer", "MADE"),
    "set": "ledger", "written": "2026-11-27",
}


def loss_of(backbone, head, images, labels):
    return F.cross_entropy(head(backbone(images)), labels)


def main():
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    backbone = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten())
    head = nn.Linear(512, 10)
    count = len(images)
    slow = torch.optim.SGD(backbone.parameters(), lr=0.01 / count / count)  # MADE
    fast = torch.optim.SGD(head.parameters(), lr=1e-3)
    for step in range(120):
        batch = torch.randint(0, count, (32,))
        loss = loss_of(backbone, head, images[batch], labels[batch])
        slow.zero_grad()
        fast.zero_grad()
        loss.backward()
        slow.step()
        fast.step()
        if step % 40 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
