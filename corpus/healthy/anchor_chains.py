"""A custom function, a soft mixture of experts, and a second phase by LBFGS with a frozen gate."""

import torch
import torch.nn.functional as F
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentyeighth",
    "written": "2026-11-29",
}



class SoftFloor(torch.autograd.Function):
    """max(x, 0) + small curve near zero, with the derivative written out."""

    @staticmethod
    def forward(ctx, x, width):
        ctx.save_for_backward(x)
        ctx.width = width
        return 0.5 * (x + torch.sqrt(x * x + width * width))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = 0.5 * (1 + x / torch.sqrt(x * x + ctx.width ** 2))
        return grad * slope, None


class ChainModel(nn.Module):
    def __init__(self, inputs=6, experts=4, hidden=16):
        super().__init__()
        self.gate = nn.Linear(inputs, experts)
        self.inner = nn.Parameter(torch.randn(experts, inputs, hidden) / inputs ** 0.5)
        self.shift = nn.Parameter(torch.zeros(experts, 1, hidden))
        self.outer = nn.Parameter(torch.randn(experts, hidden) / hidden ** 0.5)

    def forward(self, x):
        weight = self.gate(x).softmax(-1)
        h = SoftFloor.apply(torch.einsum("bi,eih->ebh", x, self.inner) + self.shift, 0.1)
        out = torch.einsum("ebh,eh->be", h, self.outer)
        return (weight * out).sum(1), weight


def load_chains(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=g)
    kind = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    slopes = torch.tensor([[1.0, -1, 0, 0], [0, 1, 1, 0], [-1, 0, 0, 1], [0, 0, -1, -1]])
    y = (slopes[kind] * x[:, 2:]).sum(1) + 0.05 * torch.randn(count, generator=g)
    return x, y


def objective(model, x, y, balance=0.01):
    out, weight = model(x)
    share = weight.mean(0)
    return F.mse_loss(out, y) + balance * (share * share).sum() * len(share)


def rough_stage(model, x, y, steps=400):
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        pick = torch.randint(len(x), (128,))
        loss = objective(model, x[pick], y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"after the rough stage {objective(model, x, y).item():.4f}")


def fine_stage(model, x, y, rounds=12):
    model.gate.requires_grad_(False)
    free = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.LBFGS(free, lr=1.0, max_iter=20, history_size=20, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = objective(model, x, y)
        loss.backward()
        return loss

    for k in range(rounds):
        loss = opt.step(closure)
        if k % 3 == 0:
            print(f"round {k:2d}  loss {loss.item():.5f}")
    model.gate.requires_grad_(True)


def main():
    torch.manual_seed(41)
    x, y = load_chains(2000, 1)
    xt, yt = load_chains(1000, 2)
    model = ChainModel()
    probe = torch.randn(5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: SoftFloor.apply(v, 0.1), probe)
    rough_stage(model, x, y)
    with torch.no_grad():
        print(f"held out mse {F.mse_loss(model(xt)[0], yt).item():.4f}")
    fine_stage(model, x, y)
    with torch.no_grad():
        print(f"held out mse {F.mse_loss(model(xt)[0], yt).item():.4f}  variance {yt.var().item():.3f}")


if __name__ == "__main__":
    main()
