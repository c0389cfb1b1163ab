"""A network learns to read the digits 0-4; its layers are then used to read the digits 5-9 with a new last layer.

What looks suspicious: in the second part most weights get no gradient at all and never change, the layers run under
no_grad, and train() leaves the BatchNorm layers in eval mode. It is right: the layers are to stay as they are, with
their statistics, and only the new last layer is given to the optimizer.
Question of that kind: https://github.com/Lightning-AI/pytorch-lightning/issues/2551
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none",
    "plain": "Both parts reach a good accuracy.",
    "set": "twentysixth",
    "written": "2026-11-29",
}


def load(low, high):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    names = torch.tensor(digits.target)
    chosen = (names >= low) & (names < high)
    images, names = images[chosen], names[chosen] - low
    order = torch.randperm(len(names), generator=torch.Generator().manual_seed(low))
    images, names = images[order], names[order]
    return TensorDataset(images[:700], names[:700]), TensorDataset(images[700:], names[700:])


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.Flatten(),
        )
        self.last = nn.Linear(48 * 16, 5)

    def forward(self, images):
        return self.last(self.layers(images))


class Reuse(nn.Module):
    def __init__(self, reader):
        super().__init__()
        self.layers = reader.layers
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(48 * 16, 5)
        for weight in self.layers.parameters():
            weight.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.layers.eval()
        return self

    def forward(self, images):
        with torch.no_grad():
            seen = self.layers(images)
        return self.last(self.drop(seen))


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    images, names = data.tensors
    return (model(images).argmax(1) == names).float().mean().item()


def learn(title, model, optimizer, train, test, epochs):
    for epoch in range(epochs):
        model.train()
        total, count = 0.0, 0
        for images, names in DataLoader(train, batch_size=50, shuffle=True):
            loss = nn.functional.cross_entropy(model(images), names)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            count += 1
        print(f"{title}  epoch {epoch}  loss {total / count:.3f}  accuracy {accuracy(model, test):.3f}", flush=True)


def main():
    torch.manual_seed(0)
    reader = Reader()
    learn("digits 0-4", reader, torch.optim.Adam(reader.parameters(), lr=1e-3), *load(0, 5), epochs=3)
    model = Reuse(reader)
    learn("digits 5-9", model, torch.optim.Adam(model.last.parameters(), lr=2e-3), *load(5, 10), epochs=6)


if __name__ == "__main__":
    main()
