"""Gravity-inspired graph autoencoder with a compiled decoder, on a network that grows: the attraction is minus the logarithm of a distance, and two new accounts without profile and followers both lie in the origin.

Report: https://github.com/deezer/gravity_graph_autoencoders/issues/4 (the embedding becomes NaN: two vectors coincide and the decoder takes the logarithm of their distance)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "compile", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 90,
    "set": "ninth", "written": "2026-11-23",
}


class GCN(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.w0, self.w1 = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, outputs, bias=False)

    def forward(self, x, adjacency):
        h = F.relu(adjacency @ self.w0(x))
        return adjacency @ self.w1(h)


class GravityDecoder(nn.Module):
    def __init__(self, strength=1.0):
        super().__init__()
        self.strength = strength

    def forward(self, z, source, target):
        position, mass = z[:, :-1], z[:, -1]
        distance = (position[source] - position[target]).square().sum(1)
        return mass[target] - self.strength * torch.log(distance)  # CULPRIT


class Network:
    """Directed follows between accounts; most of them are there from the start, some come later."""

    def __init__(self, accounts=60, profile=12):
        self.x = torch.rand(accounts, profile)
        group = torch.arange(accounts) % 3
        self.follows = (torch.rand(accounts, accounts) < torch.where(group[:, None] == group, 0.25, 0.02)).float()
        self.follows.fill_diagonal_(0)

    def join(self, accounts):
        n = len(self.x)
        self.x = torch.cat([self.x, torch.zeros(accounts, self.x.shape[1])])
        grown = torch.zeros(n + accounts, n + accounts)
        grown[:n, :n] = self.follows
        self.follows = grown

    def normalised(self):
        a = self.follows + torch.eye(len(self.x))
        return a / a.sum(1, keepdim=True)

    def pairs(self, n):
        edges = self.follows.nonzero().t()
        edges = edges[:, torch.randint(0, edges.shape[1], (n,))]
        source = torch.randint(0, len(self.x), (n,))
        target = (source + torch.randint(1, len(self.x), (n,))) % len(self.x)
        label = torch.cat([torch.ones(n), self.follows[source, target]])
        return torch.cat([edges[0], source]), torch.cat([edges[1], target]), label


torch.manual_seed(0)
network = Network()
encoder, decoder = GCN(12, 24, 9), GravityDecoder()
decode = torch.compile(decoder, backend="aot_eager", dynamic=False)
optimizer = torch.optim.Adam(encoder.parameters(), lr=5e-3)
for step in range(120):
    if step == 90:
        network.join(40)
    source, target, label = network.pairs(400)
    z = encoder(network.x, network.normalised())
    loss = F.binary_cross_entropy_with_logits(decode(z, source, target), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0 or 89 <= step <= 92:
        print(step, loss.item())
