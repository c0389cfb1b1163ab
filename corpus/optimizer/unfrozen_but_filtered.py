"""Gradual unfreezing: the optimizer was built from what was trainable at the start, the layer unfrozen later is in no group.

Report: https://github.com/luxonis/luxonis-train/pull/358 (a node's parameters ended in no optimizer after they were unfrozen)
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["stages.1.weight", "stages.1.bias"],
    "set": "first", "written": "2026-11-22",
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for stage in self.stages:
            x = torch.relu(stage(x))
        return self.head(x)


torch.manual_seed(0)
net = Net()
net.stages.requires_grad_(False)
opt = torch.optim.SGD(filter(lambda p: p.requires_grad, net.parameters()), lr=0.05, momentum=0.9)  # OPTIMIZER
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 80)
for step in range(80):
    if step == 40:
        net.stages[1].requires_grad_(True)
        before = net.stages[1].weight.detach().clone()
    x = torch.randn(16, 8)
    loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
print("reproduced", torch.equal(before, net.stages[1].weight))
