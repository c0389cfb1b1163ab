"""Node classification with a hand-written graph network; only the last layer learns, the message-passing layers keep their random weights.

Report: https://github.com/pytorch/pytorch/issues/715 (the parameters of modules that are kept in a plain list are not included in parameters())

Effect: the weights of the hidden layers do not move and the test accuracy is well below that of the same network with nn.ModuleList.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "unregistered-parameter", "line": ("cut", "CAUSE"),
    "what": "The graph layers stand in a plain Python list, so they are not registered and the optimizer never sees them; use nn.ModuleList.",
    "set": "eighteenth", "written": "2026-11-27",
}


def make_graph(nodes=500, classes=5, dim=60, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (nodes,), generator=g)
    same = y[:, None] == y[None, :]
    prob = torch.where(same, torch.tensor(0.02), torch.tensor(0.008))
    upper = torch.triu(torch.rand(nodes, nodes, generator=g) < prob, 1).float()
    adj = upper + upper.T + torch.eye(nodes)
    deg = adj.sum(1)
    adj = adj / (deg[:, None] * deg[None, :]).sqrt()
    centers = torch.randn(classes, dim, generator=g)
    x = 0.35 * centers[y] + torch.randn(nodes, dim, generator=g)
    return x, adj, y


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o)

    def forward(self, x, adj):
        return adj @ self.lin(x)


class GCN(nn.Module):
    def __init__(self, dim, hidden, classes, depth=2):
        super().__init__()
        self.layers = []  # CAUSE
        for i in range(depth):
            self.layers.append(GraphConv(dim if i == 0 else hidden, hidden))
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x, adj):
        for layer in self.layers:
            x = F.relu(layer(x, adj))
        return self.classifier(x)


torch.manual_seed(0)
x, adj, y = make_graph()
train_mask = torch.rand(len(y)) < 0.4
model = GCN(x.shape[1], 12, 5)
first = model.layers[0].lin.weight.detach().clone()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)

for epoch in range(150):
    model.train()
    out = model(x, adj)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 30 == 29:
        acc = (out.argmax(1) == y)[~train_mask].float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.3f} test acc {acc:.3f}")
print(f"change of the first layer {(model.layers[0].lin.weight - first).abs().max().item():.5f}")
