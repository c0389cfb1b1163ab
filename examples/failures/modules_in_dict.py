"""Per-relation layers of a graph network are kept in a plain dict."""

import torch
from torch import nn

EXPECT = {"kind": "unregistered-parameter", "line": ("cut", "CUT"), "module": "conv"}


class RelConv(nn.Module):
    def __init__(self, names, d):
        super().__init__()
        self.self_loop = nn.Linear(d, d)
        self.relations = {}  # CUT
        for name in names:
            self.relations[name] = nn.Linear(d, d)  # CUT

    def forward(self, h, edges):
        out = self.self_loop(h)
        for name, (src, dst) in edges.items():
            out = out.index_add(0, dst, self.relations[name](h[src]))
        return torch.relu(out)


class GNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.readout = RelConv(["likes", "knows"], 6), nn.Linear(6, 2)

    def forward(self, h, edges):
        return self.readout(self.conv(h, edges))


torch.manual_seed(0)
gnn = GNN()
opt = torch.optim.Adam(gnn.parameters(), lr=1e-2)
edges = {k: (torch.randint(0, 9, (12,)), torch.randint(0, 9, (12,))) for k in ("likes", "knows")}
for _ in range(3):
    loss = nn.functional.cross_entropy(gnn(torch.randn(9, 6), edges), torch.randint(0, 2, (9,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print({"reproduced": len(list(gnn.parameters())) == 4})
