"""A classifier of digits is trained without an optimizer, and each update follows the gradient up."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "update-climbs", "line": ("stepped", "CLIMBS")}


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    for batch in torch.randperm(len(images)).split(64):
        loss = nn.functional.cross_entropy(model(images[batch].float() / 16), labels[batch])
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.05 * weight.grad  # CLIMBS
    print(loss.item())


if __name__ == "__main__":
    main()
