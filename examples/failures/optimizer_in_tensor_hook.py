"""Optimizer step fused into backward, with Tensor.register_hook: p.grad is not there yet (or is the old one)."""

import torch
from torch import nn

EXPECT = {"kind": "hook-order", "line": ("stale", "STALE")}


class FusedSGD:
    def __init__(self, model, lr):
        self.lr, self.skipped, self.applied = lr, 0, 0
        for p in model.parameters():
            p.register_hook(lambda grad, p=p: self.apply(p))  # HOOK

    @torch.no_grad()
    def apply(self, p):
        if p.grad is None:  # STALE
            self.skipped += 1
            return
        p.add_(p.grad, alpha=-self.lr)  # STALE
        p.grad = None
        self.applied += 1


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    fused = FusedSGD(model, 0.05)
    for _ in range(3):
        x = torch.randn(16, 4)
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    return {"reproduced": fused.skipped == 4, "applied": fused.applied}


if __name__ == "__main__":
    print(main())
