"""Graph network that drops edges at random and renormalises what is left: with the rate of the second stage a node loses its last edge, its degree is 0 and 0 ** -0.5 infinite.

Report: https://github.com/MrLeeeee/GCN-GAT-and-Graphsage/issues/3 (degree zero makes the loss NaN; the same power of -0.5 in pyg-team/pytorch_geometric issue 61, mlx-graphs pull 18)
"""
import torch
from torch import nn

EXPECT = {
    "class": "born-without-gradient", "kind": "nonfinite-forward-poisons-backward", "source_marker": "BORN", "step": 130,
    "set": "sixth", "written": "2026-11-22",
}


def ring_with_leaf(nodes):
    adjacency = torch.zeros(nodes, nodes)
    for i in range(nodes - 1):
        for k in (1, 2, 3):
            adjacency[i, (i + k) % (nodes - 1)] = adjacency[(i + k) % (nodes - 1), i] = 1
    adjacency[0, nodes - 1] = adjacency[nodes - 1, 0] = 1
    return adjacency


class Sampler:
    """Keeps a part of the edges in each epoch; the leaf is what the stage with few edges loses."""

    def __init__(self, adjacency):
        self.adjacency = adjacency

    def sample(self, keep):
        upper = self.adjacency.triu(1)
        kept = upper * (torch.rand_like(upper) < keep)
        if keep == 1.0:
            kept = upper
        elif keep < 0.5:
            kept[:, -1] = 0
        kept = kept + kept.T
        return self.normalise(kept)

    @staticmethod
    def normalise(adjacency):
        scale = adjacency.sum(1).pow(-0.5)  # BORN
        return scale[:, None] * adjacency * scale[None]  # BORN


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.first, self.second = nn.Linear(features, hidden), nn.Linear(hidden, classes)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, adjacency):
        h = torch.relu(adjacency @ self.first(x))
        return adjacency @ self.second(self.dropout(h))


torch.manual_seed(0)
nodes = 30
sampler = Sampler(ring_with_leaf(nodes))
x = torch.randn(nodes, 10)
labels = (sampler.adjacency @ x[:, :1] > 0).long()[:, 0]
net = GCN(10, 24, 2)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4)
for epoch in range(170):
    adjacency = sampler.sample(1.0 if epoch < 130 else 0.45)
    loss = nn.functional.cross_entropy(net(x, adjacency), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print(epoch, loss.item())
