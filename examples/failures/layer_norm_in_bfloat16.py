"""A classifier of digits, trained wholly in bfloat16: the weights of its normalisation never move."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "update-rounds-away", "line": ("cause", "CASTS")}


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.to(torch.bfloat16) / 16
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))
    model = model.bfloat16()  # CASTS
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for batch in torch.randperm(len(images)).split(64):
        loss = nn.functional.cross_entropy(model(images[batch]).float(), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
