"""Healthy: a custom function with a double backward, a gradient penalty, a checkpoint, then LBFGS in float64."""
import copy
import io

import torch
from torch import nn

EXPECT = {
    "kind": None,
    "set": "twentyseventh",
    "written": "2026-11-29",
}


torch.manual_seed(41)
torch.set_default_dtype(torch.float64)


def bench(n):
    """Field angle, focus and temperature against the measured image offset."""
    u = torch.rand(n, 3) * 2 - 1
    r = 0.8 * u[:, 0] + 0.5 * u[:, 0] ** 3 - 0.3 * u[:, 0] ** 5
    off = r * (1 + 0.2 * u[:, 1]) + 0.1 * torch.sin(3 * u[:, 2]) * u[:, 1]
    return u, off + 0.01 * torch.randn(n)


class OddTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, slope):
        t = torch.tanh(slope * x)
        ctx.save_for_backward(x, slope, t)
        return t

    @staticmethod
    def backward(ctx, g):
        x, slope, t = ctx.saved_tensors
        inner = g * (1 - t * t)
        return inner * slope, (inner * x).sum(0)


class Layer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o)
        self.slope = nn.Parameter(torch.ones(o))

    def forward(self, x):
        return OddTanh.apply(self.lin(x), self.slope)


class Lens(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.body = nn.Sequential(Layer(3, width), Layer(width, width))
        self.out = nn.Linear(width, 1)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, u):
        return self.scale * self.out(self.body(u)).squeeze(-1)


def smoothness(net, u):
    u = u.detach().clone().requires_grad_(True)
    (g,) = torch.autograd.grad(net(u).sum(), u, create_graph=True)
    return g[:, 2].pow(2).mean()


def rough_fit(net, u, y, steps=150):
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    for step in range(steps):
        i = torch.randint(0, len(u), (128,))
        loss = (net(u[i]) - y[i]).pow(2).mean() + 1e-3 * smoothness(net, u[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rough fit loss {loss.item():.5f}")
    buf = io.BytesIO()
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, buf)
    buf.seek(0)
    return buf


def polish(buf, u, y, vu, vy, rounds=40):
    net = Lens()
    net.load_state_dict(torch.load(buf, weights_only=True)["net"])
    net.scale.copy_(y.std() / net(u).detach().std())
    opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=8, history_size=20, line_search_fn="strong_wolfe")
    best, best_state, calls = float("inf"), None, 0

    def closure():
        nonlocal calls
        calls += 1
        opt.zero_grad()
        loss = (net(u) - y).pow(2).mean() + 1e-4 * smoothness(net, u)
        loss.backward()
        return loss

    for r in range(rounds):
        loss = opt.step(closure)
        with torch.no_grad():
            val = (net(vu) - vy).pow(2).mean().sqrt().item()
        if val < best:
            best, best_state = val, copy.deepcopy(net.state_dict())
        if (r + 1) % 8 == 0:
            print(f"round {r + 1} loss {loss.item():.6f} val rmse {val:.5f} evaluations {calls}")
    net.load_state_dict(best_state)
    return net


def main():
    u, y = bench(1500)
    vu, vy = bench(400)
    tu, ty = bench(400)
    net = polish(rough_fit(Lens(), u, y), u, y, vu, vy)
    with torch.no_grad():
        print(f"test rmse {(net(tu) - ty).pow(2).mean().sqrt().item():.5f} (noise 0.01)")


if __name__ == "__main__":
    main()
