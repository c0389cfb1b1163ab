"""A physics-informed network for u'' = -pi^2 sin(pi x), finished with L-BFGS as everybody recommends. Adam brings the
residual down, but in the first L-BFGS steps the loss becomes NaN: the closure is called several times a step, and as the
gradients are cleared only outside the closure those of all calls pile up and L-BFGS works with wrong slopes."""
import math
import torch
import torch.nn as nn

EXPECT = {
    "class": "gradients accumulate over closure calls",
    "kind": "gradient-not-cleared",
    "line": ["cleared", "cause"],
    "what": "zero_grad() is outside the closure; L-BFGS evaluates the closure many times per step and sees the sum of the gradients of all former evaluations, not that of the current point.",
    "symptom": "no error; loss NaN within the first three L-BFGS steps (after 200 good Adam steps)",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(16)
torch.set_num_threads(1)


class FieldNet(nn.Module):
    def __init__(self, width=20, depth=3):
        super().__init__()
        sizes = [1] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.out = nn.Linear(width, 1)
        for layer in self.hidden:
            nn.init.xavier_normal_(layer.weight)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


class PoissonProblem:
    def __init__(self, n=64):
        self.x = torch.linspace(-1, 1, n).unsqueeze(1).requires_grad_(True)
        self.edge = torch.tensor([[-1.0], [1.0]])
        self.source = -(math.pi ** 2) * torch.sin(math.pi * self.x.detach())

    def loss(self, net):
        u = net(self.x)
        (du,) = torch.autograd.grad(u.sum(), self.x, create_graph=True)
        (ddu,) = torch.autograd.grad(du.sum(), self.x, create_graph=True)
        residual = (ddu - self.source).pow(2).mean()
        boundary = net(self.edge).pow(2).mean()
        return residual + 20 * boundary

    @torch.no_grad()
    def error(self, net):
        return (net(self.x) - torch.sin(math.pi * self.x)).abs().max().item()


problem = PoissonProblem()
net = FieldNet()

adam = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(200):
    adam.zero_grad()
    loss = problem.loss(net)
    loss.backward()
    adam.step()
print(f"after Adam:    loss {loss.item():.4f}  max error {problem.error(net):.4f}")

optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=10, history_size=20)


def closure():
    loss = problem.loss(net)
    loss.backward()
    return loss


for outer in range(15):
    optimizer.zero_grad()  # <-- cause
    value = optimizer.step(closure)
    if outer % 3 == 2:
        print(f"L-BFGS {outer + 1:2d}:     loss {value.item():.4f}  max error {problem.error(net):.4f}")
