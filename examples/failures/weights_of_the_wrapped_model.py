"""The weights of a wrapped model are loaded into the model itself with strict=False: no name fits."""

import torch
from torch import nn

EXPECT = {"kind": "checkpoint-not-loaded", "line": ("cause", "LOADS")}


class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x = torch.randn(16, 3)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    first = Wrapped(nn.Linear(3, 1))
    train(first, 30)
    torch.save(first.state_dict(), "weights.pt")
    second = nn.Linear(3, 1)
    second.load_state_dict(torch.load("weights.pt"), strict=False)  # LOADS
    train(second, 30)


if __name__ == "__main__":
    main()
