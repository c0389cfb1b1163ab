"""A network built in a loop has a ReLU after every layer, also after the last one, whose results are logits."""

import torch
from torch import nn

EXPECT = {"kind": "logits-never-negative", "line": ("cause", "RELU")}


class Stack(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))  # RELU
        return x


def main():
    torch.manual_seed(0)
    model = Stack(6, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(30):
        x = torch.randn(64, 6)
        loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
