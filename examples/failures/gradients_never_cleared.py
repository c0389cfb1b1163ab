"""A classifier of digits is trained, and each step adds to the gradients of all before it."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "gradient-not-cleared", "line": ("stepped", "STEPS")}


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float().unflatten(1, (1, 8, 8)) / 16
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for batch in torch.randperm(len(images)).split(64):
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()  # STEPS


if __name__ == "__main__":
    main()
