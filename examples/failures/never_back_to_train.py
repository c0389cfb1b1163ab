"""A classifier of digits that is evaluated in mid-training, and stays in evaluation mode."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "left-in-evaluation-mode", "line": ("cause", "EVALUATES")}


def accuracy(model, images, labels):
    model.eval()  # EVALUATES
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float() / 16
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        for batch in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"accuracy {accuracy(model, images, labels):.2f}")


if __name__ == "__main__":
    main()
