"""Full backward hook on a residual branch whose output is changed by `+=` in the parent."""

import torch
from torch import nn

EXPECT = {"kind": "hook-inplace-conflict", "line": ("hook", "HOOK")}


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(c, c, 3, padding=1), nn.BatchNorm2d(c))

    def forward(self, x):
        out = self.branch(x)
        out += x  # MUTATES
        return torch.relu(out)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.res, self.fc = nn.Conv2d(3, 4, 3), Res(4), nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.res(self.stem(x)).mean((2, 3)))


def add_hooks(model, store):
    for name, module in model.named_modules():
        if name.endswith("branch"):
            module.register_full_backward_hook(lambda m, i, o, n=name: store.update({n: o[0]}))  # HOOK


if __name__ == "__main__":
    torch.manual_seed(0)
    net, store = Net(), {}
    add_hooks(net, store)
    net(torch.rand(2, 3, 8, 8)).sum().backward()
