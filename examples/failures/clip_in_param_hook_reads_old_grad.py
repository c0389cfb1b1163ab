"""Per-parameter adaptive clipping in a tensor hook divides by p.grad.norm() - the gradient of the step before."""

import torch
from torch import nn

EXPECT = {"kind": "hook-order", "line": ("stale", "STALE")}


def attach_clipping(model, limit):
    seen = []

    def make(param):
        def clip(grad):
            if param.grad is not None:  # STALE
                norm = param.grad.norm()  # STALE
                seen.append(norm.item())
                if norm > limit:
                    return grad * (limit / norm)
            return grad

        return clip

    for param in model.parameters():
        param.register_hook(make(param))  # HOOK
    return seen


def main():
    torch.manual_seed(0)
    model = nn.Linear(6, 1)
    seen = attach_clipping(model, 0.01)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        opt.zero_grad(set_to_none=False)
        model(torch.randn(8, 6)).square().mean().backward()
        opt.step()
    return {"reproduced": bool(seen) and max(seen) == 0, "last": model.weight.grad.norm().item()}


if __name__ == "__main__":
    print(main())
