"""Graph network with DropEdge that is raised epoch by epoch: degrees are taken to the power of -1/2, and sooner or later a node has lost all of its edges.

Report: https://github.com/MrLeeeee/GCN-GAT-and-Graphsage/issues/3 (a degree of zero makes the loss NaN; wujcan/SGL-TensorFlow issue 19 replaces the Inf of the power)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 57,
    "set": "seventh", "written": "2026-11-22",
}


def drop_edge(edges, rate):
    return edges[:, torch.rand(edges.shape[1]) >= rate]


def normalised_adjacency(edges, nodes):
    adjacency = torch.zeros(nodes, nodes)
    adjacency[edges[0], edges[1]] = 1.0
    adjacency[edges[1], edges[0]] = 1.0
    scale = adjacency.sum(1).pow(-0.5)  # CULPRIT
    return scale[:, None] * adjacency * scale[None]


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.neighbours, self.own = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, adjacency):
        return self.neighbours(adjacency @ x) + self.own(x)


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.conv1, self.conv2 = GraphConv(features, hidden), GraphConv(hidden, classes)

    def forward(self, x, adjacency):
        return self.conv2(torch.relu(self.conv1(x, adjacency)), adjacency)


torch.manual_seed(0)
nodes = 60
labels = torch.arange(nodes) % 3
ring = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 3) % nodes])
extra = torch.stack([torch.arange(nodes).repeat(2), torch.randint(0, nodes, (2 * nodes,))])
edges = torch.cat([ring, extra[:, extra[0] != extra[1]]], 1)
x = nn.functional.one_hot(labels, 3).float() + torch.randn(nodes, 3)
net = GCN(3, 16, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4)
for step in range(200):
    adjacency = normalised_adjacency(drop_edge(edges, rate=0.1 + 0.4 * step / 200), nodes)
    loss = nn.functional.cross_entropy(net(x, adjacency), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item())
