"""A classifier of digits whose first layer is frozen after some steps; the loop clears only gradients of the others."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "stale-gradient", "line": ("frozen", "FREEZES")}


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, batch in enumerate(torch.randperm(len(images)).split(64)):
        if step == 8:
            for p in model[0].parameters():
                p.requires_grad = False  # FREEZES
        for p in model.parameters():
            if p.requires_grad:
                p.grad = None
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
