"""Multinomial classifier on digits: LBFGS with a closure first, then truncated Newton by CG.

Right because: LBFGS calls the closure many times for each step (the closure zeroes the
gradients itself); the Newton phase uses Hessian-vector products from a gradient graph built
with create_graph=True and reused with retain_graph=True for the CG iterations of this step
only; the new weights are written under no_grad, with a backtracking line search.
No .grad field is filled in the Newton phase - it is not needed there.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}

L2 = 1e-4


def load():
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float64) / 16
    return x[:1400], torch.tensor(y[:1400]), x[1400:], torch.tensor(y[1400:])


def objective(net, x, y):
    reg = sum((p ** 2).sum() for p in net.parameters())
    return F.cross_entropy(net(x), y) + L2 * reg


def flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def conjugate_gradient(hvp, b, iters=12, tol=1e-3):
    x, r = torch.zeros_like(b), b.clone()
    p, rr = r.clone(), r @ r
    for _ in range(iters):
        hp = hvp(p)
        curvature = p @ hp
        if curvature <= 0:
            break
        a = rr / curvature
        x, r = x + a * p, r - a * hp
        new = r @ r
        if new.sqrt() < tol * b.norm():
            break
        p, rr = r + (new / rr) * p, new
    return x if x.any() else b


@torch.no_grad()
def assign(params, vector):
    i = 0
    for p in params:
        p.copy_(vector[i:i + p.numel()].view_as(p))
        i += p.numel()


def newton_step(net, x, y, damping):
    params = list(net.parameters())
    loss = objective(net, x, y)
    grads = torch.autograd.grad(loss, params, create_graph=True)
    g = flat(grads)

    def hvp(v):
        return flat(torch.autograd.grad(g, params, grad_outputs=v, retain_graph=True)) + damping * v

    step = conjugate_gradient(hvp, -g.detach())
    start, scale = flat(params).detach().clone(), 1.0
    for _ in range(8):
        assign(params, start + scale * step)
        with torch.no_grad():
            new = objective(net, x, y)
        if new < loss.detach():
            return new.item()
        scale /= 2
    assign(params, start)
    return loss.item()


def main():
    torch.manual_seed(0)
    xtr, ytr, xte, yte = load()
    net = nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10)).double()
    opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=4, history_size=10, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = objective(net, xtr, ytr)
        loss.backward()
        return loss

    for step in range(30):
        loss = opt.step(closure)
        if step % 10 == 0:
            print(f"lbfgs {step} loss {loss.item():.5f}")
    opt.zero_grad(set_to_none=True)
    for step in range(60):
        idx = torch.randperm(len(xtr))[:700]
        value = newton_step(net, xtr[idx], ytr[idx], damping=0.02)
        if step % 20 == 19:
            print(f"newton {step} loss {value:.5f}")
    with torch.inference_mode():
        print("full loss", objective(net, xtr, ytr).item(), "test accuracy", (net(xte).argmax(1) == yte).double().mean().item())


if __name__ == "__main__":
    main()
