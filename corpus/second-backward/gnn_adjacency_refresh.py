"""Traffic network with a learned adjacency: after a while it is renewed only every fourth step to save time, and the steps between walk a freed graph."""
import torch
from torch import nn

EXPECT = {
    "class": "late-second-backward", "kind": "second-backward", "bridge_marker": "REUSED", "module": "mix", "step": 1001,
    "set": "late", "written": "2026-11-22",
}


class Mix(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own, self.neighbours = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)

    def forward(self, h, adjacency):
        around = adjacency @ self.neighbours(h)  # REUSED
        return torch.relu(self.own(h) + around)


class Forecaster(nn.Module):
    def __init__(self, nodes=10, history=4, dim=12):
        super().__init__()
        self.source, self.target = nn.Parameter(torch.randn(nodes, 4)), nn.Parameter(torch.randn(4, nodes))
        self.embed, self.mix, self.out = nn.Linear(history, dim), Mix(dim), nn.Linear(dim, 1)
        self.refresh, self.calls, self.adjacency = 1, 0, None

    def forward(self, x):
        if self.calls % self.refresh == 0:
            self.adjacency = torch.relu(self.source @ self.target).softmax(1)
        self.calls += 1
        return self.out(self.mix(self.embed(x), self.adjacency))[..., 0]


def traffic(batch, roads):
    x = torch.randn(batch, len(roads), 4).cumsum(2)
    return x, 0.5 * x[..., -1] + 0.5 * x[:, roads, -2]


torch.manual_seed(0)
roads = torch.randperm(10)
model = Forecaster()
opt = torch.optim.Adam(model.parameters(), 2e-3)
epoch_length = 143
for step in range(1300):
    if step == 7 * epoch_length:
        model.refresh = 4
    x, y = traffic(8, roads)
    loss = nn.functional.l1_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % epoch_length == 0:
        print(step // epoch_length, round(loss.item(), 4))
