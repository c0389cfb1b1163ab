"""The digits network with a mistake: each pixel is scaled by its own deviation, and some pixels are always blank."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 4 * 4, 10))

    def forward(self, images):
        return self.classifier(self.features(images))


def load():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)
    images = (images - images.mean(0)) / images.std(0)
    return images.unsqueeze(1), torch.tensor(digits.target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(0)
    images, labels = load()
    train, test = torch.utils.data.random_split(torch.utils.data.TensorDataset(images, labels), [1500, 297])
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(options.epochs):
        model.train()
        for batch, target in torch.utils.data.DataLoader(train, batch_size=64, shuffle=True):
            loss = F.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in torch.utils.data.DataLoader(test, 64))
        print(f"epoch {epoch}: loss {loss.item():.3f}, {right} of {len(test)} right")


if __name__ == "__main__":
    main()
