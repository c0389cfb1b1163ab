"""Meta-learning with torch.func: the adapted weights of a task are kept as the start for its next visit, with the graph that led to them.

Report: https://github.com/tristandeleu/pytorch-meta/issues/89 (the error in the outer backward)
"""
import torch
from torch import nn
from torch.func import functional_call

EXPECT = {
    "class": "second-backward", "framework": "torch.func", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "third", "written": "2026-11-22",
}


class Learner:
    def __init__(self, net, inner_lr=0.05):
        self.net, self.inner_lr, self.adapted = net, inner_lr, {}

    def adapt(self, task, x, y, steps=2):
        fast = self.adapted.get(task, dict(self.net.named_parameters()))
        for _ in range(steps):
            loss = nn.functional.mse_loss(functional_call(self.net, fast, (x,)), y)  # REUSED
            grads = torch.autograd.grad(loss, tuple(fast.values()), create_graph=True)
            fast = {name: p - self.inner_lr * g for (name, p), g in zip(fast.items(), grads)}
        self.adapted[task] = fast
        return fast


def sample(task, n=10):
    x = torch.rand(n, 1) * 10 - 5
    return x, (1 + task % 5) * torch.sin(x + 0.3 * task)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
learner = Learner(net)
meta_opt = torch.optim.Adam(net.parameters(), 1e-3)
tasks = list(range(30)) + torch.randint(0, 30, (30,)).tolist()
for step, task in enumerate(tasks):
    fast = learner.adapt(task, *sample(task))
    x, y = sample(task)
    meta_loss = nn.functional.mse_loss(functional_call(net, fast, (x,)), y)
    meta_opt.zero_grad()
    meta_loss.backward()
    meta_opt.step()
