"""Gradient reversal is written as a module with a method called backward: the classifier of writers is helped."""

import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": "backward-never-called", "line": ("cause", "NEVER")}


class Reverse(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, features):
        return features

    def backward(self, grad_output):  # NEVER
        return -self.scale * grad_output


class Strokes(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))
        self.letter = nn.Linear(8, 5)
        self.reverse = Reverse(0.5)
        self.writer = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, strokes):
        features = self.body(strokes)
        return self.letter(features), self.writer(self.reverse(features))


def main():
    torch.manual_seed(0)
    letters, writers = torch.randn(5, 8), torch.randn(3, 8)
    model = Strokes()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(60):
        letter, writer = torch.randint(5, (64,)), torch.randint(3, (64,))
        by_letter, by_writer = model(letters[letter] + writers[writer] + 0.3 * torch.randn(64, 8))
        optimizer.zero_grad()
        (F.cross_entropy(by_letter, letter) + F.cross_entropy(by_writer, writer)).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
