"""A function trains on one batch, and makes the optimizer too."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "optimizer-made-anew", "line": ("optimizer", "ANEW")}


def train_on_batch(model, images, labels):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # ANEW
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float().unflatten(1, (1, 8, 8)) / 16
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    for batch in torch.randperm(len(images)).split(64):
        loss = train_on_batch(model, images[batch], labels[batch])
    print(loss)


if __name__ == "__main__":
    main()
