"""From epoch 3 on the auxiliary loss is computed with .item() for logging, and added as a number."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.aux = nn.Linear(6, 12), nn.Linear(12, 3), nn.Linear(12, 1)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.head(h), self.aux(h)


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 1e-2)
for epoch in range(6):
    for _ in range(20):
        logits, a = net(torch.randn(8, 6))
        aux = a.square().mean()
        if epoch >= 3:
            aux = aux.item()  # CUT
        loss = nn.functional.cross_entropy(logits, torch.randint(0, 3, (8,))) + 0.1 * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
