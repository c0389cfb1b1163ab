"""Binary classifier with one output and softmax over it: always 1, gradient exactly zero."""

import torch
from torch import nn

EXPECT = {"kind": "zero-grad", "line": ("cut", "CUT")}


class Binary(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x):
        return torch.softmax(self.net(x), dim=1)  # CUT


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Binary()
    criterion = nn.MSELoss()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(5):
        x = torch.randn(20, 6)
        y = (x[:, :1] > 0).float()
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
