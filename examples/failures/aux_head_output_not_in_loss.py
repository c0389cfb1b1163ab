"""Inception-style auxiliary classifier is computed in the forward, but the training loop unpacks and ignores it."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "parameters": ["aux.0.weight", "aux.0.bias", "aux.2.weight", "aux.2.bias"]}


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body, self.fc = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, 3)
        self.aux = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))  # DEFINED

    def forward(self, x):
        h = torch.relu(self.stem(x))
        aux = self.aux(h)
        return self.fc(torch.relu(self.body(h))), aux


def loop():
    torch.manual_seed(0)
    net = Inception()
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for _ in range(5):
        logits, _ = net(torch.randn(8, 6))
        loss = nn.functional.cross_entropy(logits, torch.randint(0, 3, (8,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print([n for n, p in net.named_parameters() if p.grad is None])


loop()
