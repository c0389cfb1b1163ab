"""Custom softplus whose backward detaches one factor: the first derivative is right, the Hessian is not."""

import torch
from torch import nn

EXPECT = {"kind": "wrong-double-backward", "line": ("applied", "APPLY"), "module": "act", "ask": "functions"}


class CubePlus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3 + x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = 3 * x * x.detach() + 1
        return grad * slope  # BACKWARD


class Act(nn.Module):
    def forward(self, x):
        return CubePlus.apply(x)  # APPLY


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(3, 6), Act(), nn.Linear(6, 1)

    def forward(self, xyz):
        return self.fc2(self.act(self.fc1(xyz)))


def main():
    torch.manual_seed(0)
    model = Energy()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        xyz, force = torch.randn(5, 3, requires_grad=True), torch.randn(5, 3)
        energy = model(xyz)
        pred = -torch.autograd.grad(energy.sum(), xyz, create_graph=True)[0]
        loss = (pred - force).square().mean() + energy.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
