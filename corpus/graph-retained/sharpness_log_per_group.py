"""Digits with two parameter groups: towards the end the sharpness along the gradient is logged, each value with the graph of the graph that it was computed from."""
import torch
from sklearn.datasets import load_digits
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 412,
    "set": "late", "written": "2026-11-22",
}


class Monitor:
    def __init__(self, opt):
        self.groups = {group["name"]: group["params"] for group in opt.param_groups}
        self.curve = {name: [] for name in self.groups}

    def measure(self, loss):
        for name, params in self.groups.items():
            gradients = torch.autograd.grad(loss, params, create_graph=True)
            square = sum(g.square().sum() for g in gradients)
            self.curve[name].append(square.sqrt())  # HOLDS

    def last(self):
        return {name: round(float(values[-1]), 4) for name, values in self.curve.items() if values}


torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)
body = nn.Sequential(nn.Linear(64, 32), nn.SiLU())
head = nn.Linear(32, 10)
opt = torch.optim.SGD(
    [
        {"name": "body", "params": list(body.parameters()), "lr": 5e-2},
        {"name": "head", "params": list(head.parameters()), "lr": 1e-1},
    ],
    momentum=0.9,
)
monitor, step = Monitor(opt), 0
for epoch in range(11):
    for rows in torch.randperm(len(x)).split(32)[:-1]:
        loss = nn.functional.cross_entropy(head(body(x[rows])), y[rows])
        if step >= 412:
            monitor.measure(loss)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", monitor.last())
