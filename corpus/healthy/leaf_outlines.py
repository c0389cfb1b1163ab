"""Handwritten-like outlines of leaves: a body trained on one task is reused for a second one, first frozen, then set free.

Looks suspicious: for five epochs the body has no gradient and does not change while train() is called on the whole network every
epoch, and in the middle of the run weights that were constant begin to move, at a rate twenty times lower than the rest. It is
right: the frozen body keeps its batch norm in eval mode through its own train(), and on being set free its parameters are handed
to the running optimizer by add_param_group, with a small rate of their own.
The mistake it resembles (a body set free that is in no optimizer) is in many threads; no report is followed here.
"""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "accuracy rises in the first part and again after the body is set free",
    "set": "twentyfourth",
    "written": "2026-11-28",
}


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
                                    nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2))
        self.frozen = False

    def forward(self, x):
        return self.layers(x).flatten(1)

    def train(self, mode=True):
        return super().train(mode and not self.frozen)

    def freeze(self, on):
        self.frozen = on
        self.requires_grad_(not on)


class Outlines(nn.Module):
    def __init__(self, body, classes):
        super().__init__()
        self.body, self.head = body, nn.Linear(96, classes)

    def forward(self, x):
        return self.head(self.body(x))


def tasks():
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(26))
    x, y = x[order], y[order]
    early, late = y < 4, y >= 4
    x_late, y_late = torch.flip(x[late], dims=[3]), y[late] - 4
    return (TensorDataset(x[early], y[early]), TensorDataset(x_late[:600], y_late[:600]),
            TensorDataset(x_late[600:], y_late[600:]))


def train_epoch(model, loader, optimizer, criterion):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def accuracy(model, rows):
    model.eval()
    x, y = rows.tensors
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(26)
    torch.set_num_threads(1)
    first, second, held_out = tasks()
    criterion, body = nn.CrossEntropyLoss(), Body()
    start = Outlines(body, 4)
    optimizer = torch.optim.Adam(start.parameters(), lr=2e-3)
    loader = DataLoader(first, batch_size=32, shuffle=True, drop_last=True)
    for epoch in range(3):
        print(f"first task, epoch {epoch}: loss {train_epoch(start, loader, optimizer, criterion):.4f}")

    model = Outlines(body, 6)
    body.freeze(True)
    optimizer = torch.optim.Adam(model.head.parameters(), lr=5e-3)
    loader = DataLoader(second, batch_size=30, shuffle=True)
    for epoch in range(12):
        if epoch == 5:
            body.freeze(False)
            optimizer.add_param_group({"params": body.parameters(), "lr": 2.5e-4})
        loss = train_epoch(model, loader, optimizer, criterion)
        print(f"second task, epoch {epoch}: loss {loss:.4f}  accuracy {accuracy(model, held_out):.3f}")


if __name__ == "__main__":
    main()
