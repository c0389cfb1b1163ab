"""A new head is to be trained on a frozen body; a loop that freezes all but batch norms comes after it."""

import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {"kind": "parameter-not-in-optimizer", "line": ("optimizer", "MADE")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


def main():
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = images.float().unflatten(1, (1, 8, 8)) / 16
    model = Net()
    model.fc = nn.Linear(8, 10)
    optimizer = torch.optim.Adam(model.fc.parameters())  # MADE
    for name, param in model.named_parameters():
        if "bn" not in name:
            param.requires_grad = False
    for batch in torch.randperm(len(images)).split(64):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
