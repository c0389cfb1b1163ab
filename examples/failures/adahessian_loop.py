"""Second-order optimizer: every step backward(create_graph=True), gradients are kept in .grad."""

import torch
from torch import nn

EXPECT = {"kind": "reference-cycle", "line": ("held", "HOLDS")}


def hutchinson(params):
    grads = [p.grad for p in params]
    z = [torch.randint_like(p, 2) * 2 - 1 for p in params]
    hz = torch.autograd.grad(grads, params, grad_outputs=z, retain_graph=False)
    return [(h * v).abs() for h, v in zip(hz, z)]


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 1))
    params = list(net.parameters())
    for step in range(4):
        x = torch.randn(12, 3)
        loss = (net(x) - x.norm(dim=1, keepdim=True)).square().mean()
        for p in params:
            p.grad = None
        loss.backward(create_graph=True)  # HOLDS
        diag = hutchinson(params)
        with torch.no_grad():
            for p, d in zip(params, diag):
                p -= 0.05 * p.grad / (d + 1)


main()
