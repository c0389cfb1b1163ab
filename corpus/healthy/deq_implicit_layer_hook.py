"""Deep equilibrium model: fixed point forward without a graph, implicit gradient in a hook.

Right because: the solver runs under no_grad on purpose; one more application with a graph
re-attaches the parameters, and a tensor hook replaces the incoming gradient g by the solution
of u = J^T u + g, using vector-Jacobian products of a small separate graph (retain_graph=True,
that graph dies with the step).  spectral_norm times 0.9 keeps the map a contraction.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.utils.parametrizations import spectral_norm

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}


def solve(f, z, tol=1e-4, limit=60):
    for k in range(limit):
        new = f(z)
        if (new - z).norm() < tol * (1e-6 + new.norm()):
            return new, k + 1
        z = new
    return z, limit


class Equilibrium(nn.Module):
    def __init__(self, n_in, d):
        super().__init__()
        self.inject = nn.Linear(n_in, d)
        self.lin = spectral_norm(nn.Linear(d, d, bias=False))
        self.d, self.iterations, self.adjoint_iterations = d, 0, 0

    def forward(self, x):
        weight = 0.9 * self.lin.weight           # one power iteration and one graph node per call
        drive = self.inject(x)

        def f(z, w=weight, u=drive):
            return torch.tanh(F.linear(z, w) + u)

        with torch.no_grad():
            z, self.iterations = solve(f, torch.zeros(len(x), self.d))
        if not torch.is_grad_enabled():
            return z
        z_star = z
        z = f(z_star)
        z0 = z_star.clone().requires_grad_(True)
        f0 = f(z0, weight.detach(), drive.detach())

        def implicit(grad):
            def vjp(u):
                return torch.autograd.grad(f0, z0, u, retain_graph=True)[0] + grad
            u, self.adjoint_iterations = solve(vjp, grad)
            return u

        z.register_hook(implicit)
        return z


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.deq = Equilibrium(64, 48)
        self.norm = nn.LayerNorm(48)
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.norm(self.deq(x)))


def main():
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16 - 0.3, torch.tensor(y)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(300):
        idx = torch.randint(0, 1400, (64,))
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 49:
            forward_its, backward_its = net.deq.iterations, net.deq.adjoint_iterations
            net.eval()
            with torch.no_grad():
                acc = (net(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
            net.train()
            print(f"step {step} loss {loss.item():.4f} solver {forward_its} adjoint {backward_its} test acc {acc:.3f}")


if __name__ == "__main__":
    main()
