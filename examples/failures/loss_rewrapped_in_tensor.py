"""`loss = torch.tensor(loss.item(), requires_grad=True)` was added to make the error message go away."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class CountNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front, self.back = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 1, 1)

    def forward(self, x):
        return self.back(torch.relu(self.front(x))).sum((1, 2, 3))


def criterion(pred, count):
    return (pred - count).abs().mean()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = CountNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(4):
        images, count = torch.rand(3, 1, 8, 8), torch.tensor([2.0, 5.0, 1.0])
        loss = criterion(model(images), count)
        loss = torch.tensor(loss.item(), requires_grad=True)  # CUT
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print({"reproduced": all(p.grad is None for p in model.parameters())})
