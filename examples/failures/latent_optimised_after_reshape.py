"""Latent code is optimised by hand: `z = torch.randn(..., requires_grad=True).view(...)`; z.grad is None in every step."""

import argparse

import torch
from torch import nn

EXPECT = {"kind": "nonleaf-grad", "line": ("cut", "CUT")}


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.ConvTranspose2d(4, 8, 4), nn.ReLU(), nn.ConvTranspose2d(8, 1, 3), nn.Sigmoid())

    def forward(self, z):
        return self.net(z)


def invert(generator, target, args):
    z = torch.randn(args.batch * 4, requires_grad=True).view(args.batch, 4, 1, 1)  # CUT
    losses = []
    for _ in range(args.steps):
        loss = (generator(z) - target).square().mean()
        loss.backward(retain_graph=True)
        with torch.no_grad():
            if z.grad is not None:
                z -= args.lr * z.grad
                z.grad.zero_()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--lr", type=float, default=1.0)
    p.add_argument("--batch", type=int, default=2)
    torch.manual_seed(0)
    G = Generator().requires_grad_(False)
    history = invert(G, torch.rand(2, 1, 6, 6), p.parse_args())
    print({"reproduced": len(set(history)) == 1})
