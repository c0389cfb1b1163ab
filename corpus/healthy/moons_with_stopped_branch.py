"""A custom function stops gradients of one branch on purpose: its backward returns None and reads nothing."""
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional as F

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29", "what": "the stop is meant: the other branch trains"}


class Stop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(2, 24), nn.SiLU()), nn.Linear(24, 2)
        self.register_parameter("scale", nn.Parameter(torch.ones(24)))

    def forward(self, x):
        hidden = self.body(x)
        return self.head(self.scale * hidden + 0.1 * Stop.apply(hidden))


def main():
    torch.manual_seed(0)
    points, moons = make_moons(600, noise=0.1, random_state=0)
    inputs, labels, model = torch.tensor(points, dtype=torch.float32), torch.tensor(moons), Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        batch = torch.randint(len(inputs), (40,))
        optimizer.zero_grad()
        F.cross_entropy(model(inputs[batch]), labels[batch]).backward()
        optimizer.step()
    print((model(inputs).argmax(1) == labels).float().mean().item())


if __name__ == "__main__":
    main()
