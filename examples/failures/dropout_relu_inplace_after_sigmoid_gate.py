"""Squeeze-and-excite: ReLU(inplace=True) works on the tensor that the gate's multiplication saved."""

import torch
from torch import nn

EXPECT = {"kind": "inplace", "line": ("mutated", "MUTATES")}


class SE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv, self.fc, self.act = nn.Conv2d(c, c, 3, padding=1), nn.Linear(c, c), nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.conv(x)
        gate = torch.sigmoid(self.fc(y.mean((2, 3))))[:, :, None, None]
        scaled = y * gate  # SAVES
        return scaled + self.act(y)  # MUTATES


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.stages, self.fc = nn.Conv2d(3, 4, 3), nn.Sequential(SE(4), SE(4)), nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net()
    loss = nn.functional.cross_entropy(model(torch.rand(3, 3, 8, 8)), torch.tensor([0, 1, 0]))
    loss.backward()
