"""Temporal graph network: node memories are attended to in forward; once memory is switched on, it is refreshed with the batch's states as soon as these are known, in the tensor that attention has kept for backward.

Report: https://github.com/memgraph/mage/pull/121 (memory of a temporal graph network has to be updated and detached at the right moment, else backward fails)
"""
import torch
from torch import nn

EXPECT = {
    "class": "late-inplace", "kind": "inplace", "mutating_marker": "MUTATES", "step": 50,
    "set": "eighth", "written": "2026-11-22",
}


class Memory:
    def __init__(self, nodes, dim):
        self.state = 0.1 * torch.randn(nodes, dim)
        self.seen = torch.zeros(nodes)

    def refresh(self, nodes, values, time):
        self.state[nodes] = values.detach()  # MUTATES
        self.seen[nodes] = time


class TemporalGraph(nn.Module):
    def __init__(self, nodes=30, dim=12):
        super().__init__()
        self.embed = nn.Embedding(nodes, dim)
        self.query, self.out = nn.Linear(dim, dim), nn.Linear(2 * dim, dim)
        self.message, self.update = nn.Linear(2 * dim + 1, dim), nn.GRUCell(dim, dim)
        self.score = nn.Bilinear(dim, dim, 1)

    def attend(self, nodes, memory, allowed):
        scores = self.query(self.embed(nodes)) @ (memory.state + self.embed.weight).T / 3.5
        weights = scores.masked_fill(~allowed, -1e9).softmax(1)
        context = weights @ memory.state
        return torch.cat([self.embed(nodes), context], 1)

    def new_state(self, own, other, gap):
        return self.update(torch.tanh(self.message(torch.cat([own, other, gap[:, None]], 1))), own)


def events(step, adjacency, n=16):
    source = torch.randint(0, 30, (n,))
    target = torch.multinomial(adjacency[source] + 1e-3, 1).squeeze(1)
    return source, target, torch.randint(0, 30, (n,)), float(step)


torch.manual_seed(0)
group = torch.arange(30) % 5
adjacency = (group[:, None] == group).float()
model, memory = TemporalGraph(), Memory(30, 12)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(100):
    source, target, wrong, time = events(step, adjacency)
    allowed = (adjacency > 0) | torch.eye(30, dtype=torch.bool)
    parts = [torch.relu(model.out(model.attend(nodes, memory, allowed[nodes]))) for nodes in (source, target, wrong)]
    positive, negative = model.score(parts[0], parts[1]), model.score(parts[0], parts[2])
    loss = nn.functional.softplus(-positive).mean() + nn.functional.softplus(negative).mean()
    states = model.new_state(parts[0], parts[1], (time - memory.seen[source]) / 100)
    loss = loss + 0.1 * (states - parts[1].detach()).square().mean()
    if step >= 50:
        memory.refresh(source, states, time)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
