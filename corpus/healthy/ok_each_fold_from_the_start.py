"""Healthy: each fold begins from the first weights, with the same optimizer object and a state that is emptied; within a fold, an average of the weights is swapped in to be evaluated, and out again."""
import copy

import torch
from sklearn.datasets import load_iris
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}


class Average:
    def __init__(self, net):
        self.values = [p.detach().clone() for p in net.parameters()]

    def update(self, net):
        for mine, p in zip(self.values, net.parameters()):
            mine.lerp_(p.detach(), 0.03)

    def swap(self, net):
        for i, p in enumerate(net.parameters()):
            kept = p.data.clone()
            p.data.copy_(self.values[i])
            self.values[i] = kept


torch.manual_seed(0)
flowers = load_iris()
x = torch.tensor(flowers.data, dtype=torch.float32)
x, y = (x - x.mean(0)) / x.std(0), torch.tensor(flowers.target)
order = torch.randperm(150)
net = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 3))
first = copy.deepcopy(net.state_dict())
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for k in range(5):
    net.load_state_dict(first)
    optimizer.state.clear()
    average = Average(net)
    held = order[k * 30 : (k + 1) * 30]
    rest = torch.tensor([i for i in order.tolist() if i not in set(held.tolist())])
    for step in range(1, 61):
        pick = rest[torch.randint(0, len(rest), (24,))]
        loss = nn.functional.cross_entropy(net(x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(net)
        if step % 20 == 0:
            average.swap(net)
            with torch.no_grad():
                print(k, step, (net(x[held]).argmax(1) == y[held]).float().mean().item())
            average.swap(net)
