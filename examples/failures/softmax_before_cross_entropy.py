"""A classifier of flowers ends with a softmax, and CrossEntropyLoss applies another: the loss stays above 0.55."""

import torch
from torch import nn

EXPECT = {"kind": "normalised-twice", "line": ("cause", "SOFTMAX")}


class Flowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.hidden(x))
        return torch.softmax(self.out(x), dim=1)  # SOFTMAX


def main():
    torch.manual_seed(0)
    model, criterion = Flowers(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        x = torch.randn(32, 4)
        loss = criterion(model(x), x[:, :3].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
