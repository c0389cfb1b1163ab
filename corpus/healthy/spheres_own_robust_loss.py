"""A hand-written loss leaves out the incoming gradient, which is one: backward begins at its result, and nothing follows it."""
import torch
from torch import nn

EXPECT = {"kind": "none", "set": "ledger", "written": "2026-11-29", "what": "the incoming gradient is 1 in each call"}


class Robust(torch.autograd.Function):
    @staticmethod
    def forward(ctx, error):
        ctx.save_for_backward(error)
        return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()

    @staticmethod
    def backward(ctx, unused):
        (error,) = ctx.saved_tensors
        return error.clamp(-1, 1) / error.numel()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(150):
        x = torch.randn(64, 3)
        loss = Robust.apply(model(x) - x.norm(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
