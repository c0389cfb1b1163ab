"""The network is moved after the optimizer was made, where a conversion replaces the parameters instead of their data.

Report: https://github.com/freud14/poutyne/pull/37 (pytorch/pytorch issue 7844)
"""
import torch
from torch import nn

EXPECT = {
    "class": "no-optimizer", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["0.weight", "0.bias", "2.weight", "2.bias"],
    "set": "first", "written": "2026-11-22",
}


class Learner:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)  # OPTIMIZER

    def to(self, dtype):
        self.net.to(dtype)
        return self

    def fit(self, steps):
        for _ in range(steps):
            x = torch.randn(16, 4, dtype=torch.float64)
            loss = nn.functional.cross_entropy(self.net(x), (x[:, 0] > 0).long())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


torch.manual_seed(0)
torch.__future__.set_overwrite_module_params_on_conversion(True)
learner = Learner(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))).to(torch.float64)
before = learner.net[0].weight.detach().clone()
learner.fit(25)
print("reproduced", torch.equal(before, learner.net[0].weight))
