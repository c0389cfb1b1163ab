"""Entailment classifier whose hidden layers are pairs of a layer and an activation in a Python list, which parameters() does not look into.

Report: https://github.com/pytorch/pytorch/issues/715 (parameters are not included if the module is in a list; also pytorch issue 666)
"""
import torch
from torch import nn

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "fourth", "written": "2026-11-22",
}


class SNLINet(nn.Module):
    def __init__(self, words=30, dim=16, layers=2):
        super().__init__()
        self.embed = nn.EmbeddingBag(words, dim)
        self.hids = []  # CUT
        width = 2 * dim
        for _ in range(layers):
            self.hids.append([nn.Linear(width, dim), nn.ReLU()])  # CUT
            width = dim
        self.classifier = nn.Linear(dim, 3)

    def forward(self, premise, hypothesis):
        h = torch.cat([self.embed(premise), self.embed(hypothesis)], 1)
        for layer, activation in self.hids:
            h = activation(layer(h))
        return self.classifier(h)


torch.manual_seed(0)
net = SNLINet()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(40):
    premise, hypothesis = torch.randint(0, 30, (16, 5)), torch.randint(0, 30, (16, 4))
    loss = nn.functional.cross_entropy(net(premise, hypothesis), (premise[:, 0] + hypothesis[:, 0]) % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(len(list(net.parameters())), loss.item())
