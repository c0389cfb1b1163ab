"""Hessian-vector product the PyHessian way: loss.backward(create_graph=True), .grad keeps a graph to the parameter."""

import torch
from torch import nn

EXPECT = {"kind": "reference-cycle", "line": ("held", "HOLDS")}


class Hessian:
    def __init__(self, model, criterion, data):
        self.model, (x, y) = model, data
        loss = criterion(model(x), y)
        loss.backward(create_graph=True)  # HOLDS
        self.params = [p for p in model.parameters() if p.requires_grad]
        self.grads = [p.grad + 0.0 for p in self.params]

    def top_eigenvalue(self, iterations=5):
        v = [torch.randn_like(p) for p in self.params]
        for _ in range(iterations):
            hv = torch.autograd.grad(self.grads, self.params, v, retain_graph=True)
            norm = sum(h.square().sum() for h in hv).sqrt()
            v = [h / norm for h in hv]
        return norm.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    print(Hessian(net, nn.CrossEntropyLoss(), (torch.randn(10, 4), torch.randint(0, 2, (10,)))).top_eigenvalue())
