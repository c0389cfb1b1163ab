"""Node classification with features that are spread over the graph once, before training, and kept; only the classifier on top has weights. Nothing goes wrong."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"framework": "plain", "kind": None, "set": "eighteenth", "written": "2026-11-27"}


def village(nodes=600, groups=4, dim=30, seed=1):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, groups, (nodes,), generator=g)
    p = torch.where(y[:, None] == y[None, :], torch.tensor(0.03), torch.tensor(0.005))
    a = torch.triu(torch.rand(nodes, nodes, generator=g) < p, 1).float()
    a = a + a.T + torch.eye(nodes)
    d = a.sum(1).rsqrt()
    x = 0.4 * torch.randn(groups, dim, generator=g)[y] + torch.randn(nodes, dim, generator=g)
    return x, d[:, None] * a * d[None, :], y


class SpreadClassifier(nn.Module):
    def __init__(self, adj, hops, dim, classes):
        super().__init__()
        self.adj, self.hops, self.cached = adj, hops, None
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, classes))

    def forward(self, x):
        if self.cached is None:
            with torch.no_grad():
                for _ in range(self.hops):
                    x = self.adj @ x
            self.cached = x
        return self.net(self.cached)


torch.manual_seed(0)
x, adj, y = village()
train = torch.rand(len(y)) < 0.3
model = SpreadClassifier(adj, 2, x.shape[1], 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(120):
    model.train()
    loss = F.cross_entropy(model(x)[train], y[train])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 19:
        model.eval()
        with torch.no_grad():
            acc = (model(x).argmax(1) == y)[~train].float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.3f} test acc {acc:.3f}")
