"""Second-order optimizer: after a first-order start the squared gradients are taken from a differentiable backward, and the running mean in the optimizer's state keeps every graph.

Report: https://github.com/emtiyaz/vadam/pull/2 (tensors in the VOGN optimizer that had to be detached)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-retention", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 110,
    "set": "fourth", "written": "2026-11-22",
}


class Newton(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, decay=0.95, start=110):
        super().__init__(params, dict(lr=lr, decay=decay))
        self.start, self.count = start, 0

    def step(self, closure):
        loss = closure()
        group = self.param_groups[0]
        second = self.count >= self.start
        grads = torch.autograd.grad(loss, group["params"], create_graph=second)
        for p, g in zip(group["params"], grads):
            state = self.state[p]
            if "scale" not in state:
                state["scale"] = torch.zeros_like(p)
            state["scale"] = group["decay"] * state["scale"] + (1 - group["decay"]) * g.square()  # HOLDS
            with torch.no_grad():
                p.addcdiv_(g, state["scale"].sqrt() + 1e-4, value=-group["lr"])
        self.count += 1
        return loss.detach()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))
opt = Newton(net.parameters())
for step in range(190):
    x = torch.randn(32, 4)
    loss = opt.step(lambda: nn.functional.mse_loss(net(x)[:, 0], x.prod(1)))
    if step % 40 == 0:
        print(step, round(loss.item(), 4))
