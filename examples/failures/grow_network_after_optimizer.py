"""Continual learning: a new task head is added to a ModuleDict when the task starts; the optimizer is from before."""

import torch
from torch import nn

EXPECT = {"kind": "parameter-not-in-optimizer", "line": ("optimizer", "OPTIMIZER")}


class Incremental(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.heads = nn.Sequential(nn.Linear(6, 10), nn.ReLU()), nn.ModuleDict({"0": nn.Linear(10, 2)})

    def add_task(self, name, classes):
        self.heads[name] = nn.Linear(10, classes)

    def forward(self, x, task):
        return self.heads[task](self.trunk(x))


def run_task(model, opt, task, steps=3):
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 6), task), torch.randint(0, 2, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()


torch.manual_seed(0)
model = Incremental()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # OPTIMIZER
run_task(model, optimizer, "0")
model.add_task("1", 2)
before = model.heads["1"].weight.detach().clone()
run_task(model, optimizer, "1")
print({"reproduced": torch.equal(before, model.heads["1"].weight)})
