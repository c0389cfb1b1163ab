"""Graph network that aggregates mean and standard deviation over neighbours: a node with one neighbour has a variance of zero, the root passes an infinite gradient on."""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-backward", "source_marker": "CULPRIT", "module": "convs.0", "step": 136,
    "set": "late", "written": "2026-11-22",
}


class Conv(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message, self.update = nn.Linear(dim, dim), nn.Linear(3 * dim, dim)

    def forward(self, x, source, target):
        m = self.message(x)[source]
        count = torch.zeros(len(x), 1).index_add(0, target, torch.ones(len(target), 1)).clamp(min=1)
        mean = torch.zeros_like(x).index_add(0, target, m) / count
        square = torch.zeros_like(x).index_add(0, target, m * m) / count
        std = (square - mean * mean).clamp(min=0).sqrt()  # CULPRIT
        return self.update(torch.cat([x, mean, std], 1)).tanh()


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.embed, self.convs, self.out = nn.Linear(3, dim), nn.ModuleList([Conv(dim)]), nn.Linear(dim, 1)

    def forward(self, x, source, target):
        h = self.embed(x)
        for conv in self.convs:
            h = h + conv(h, source, target)
        return self.out(h).mean()


def random_graph(nodes=20):
    linked = torch.rand(nodes, nodes) < 0.45
    linked = linked.triu(1)
    source, target = (linked | linked.t()).nonzero().t()
    return torch.randn(nodes, 3), source, target


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), 2e-3)
for step in range(400):
    x, source, target = random_graph()
    density = len(source) / len(x) ** 2
    loss = (net(x, source, target) - density - x.mean()).square()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, loss.item())
