"""Healthy: top-1 mixture of experts with a load-balancing loss; some experts get no token in some steps."""

import torch
from torch import nn

EXPECT = {"kind": None}


class MoE(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.gate, self.experts = (
            nn.Linear(d, n),
            nn.ModuleList(nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d)) for _ in range(n)),
        )

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        weight, index = p.max(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            sel = (index == i).nonzero().squeeze(1)
            if len(sel):
                out[sel] = weight[sel, None] * expert(x[sel])
        share = torch.nn.functional.one_hot(index, len(self.experts)).float().mean(0)
        return x + out, len(self.experts) * (share * p.mean(0)).sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(5, 8), MoE(8, 6), nn.Linear(8, 3)

    def forward(self, x):
        h, aux = self.moe(self.inp(x))
        return self.out(h), aux


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(30):
    x = torch.randn(64, 5)
    logits, aux = net(x)
    loss = nn.functional.cross_entropy(logits, x[:, :3].argmax(1)) + 0.01 * aux
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
