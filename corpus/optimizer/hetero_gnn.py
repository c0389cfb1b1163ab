"""Heterogeneous graph network with learnable embeddings for node types that have no features.

Source: https://github.com/pyg-team/pytorch_geometric/issues/3604 (comment of 2022-01-27)
"""
import torch
from torch import nn
import torch.nn.functional as F

EXPECT = {
    "class": "d", "kind": "unregistered-parameter", "cut_marker": "CUT", "attribute": "embeddings", "module": "",
    "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}
SIZES = {"paper": 120, "author": 60, "venue": 10}


class RelConv(nn.Module):
    def __init__(self, dim, relations, targets):
        super().__init__()
        relations = [r for r in relations if r[2] in targets]
        self.lin = nn.ModuleDict({"__".join(r): nn.Linear(dim, dim, bias=False) for r in relations})
        self.root = nn.ModuleDict({t: nn.Linear(dim, dim) for t in targets})

    def forward(self, x, edges):
        out = {t: lin(x[t]) for t, lin in self.root.items()}
        for (src, rel, dst), (row, col) in edges.items():
            if dst not in out:
                continue
            msg = self.lin[f"{src}__{rel}__{dst}"](x[src])[row]
            agg = torch.zeros_like(out[dst]).index_add(0, col, msg)
            deg = torch.zeros(len(out[dst])).index_add(0, col, torch.ones(len(col))).clamp(min=1)
            out[dst] = out[dst] + agg / deg.unsqueeze(1)
        return out


class HeteroGNN(nn.Module):
    def __init__(self, in_dim, dim, classes, relations, extra_node_types):
        super().__init__()
        self.paper_in = nn.Linear(in_dim, dim)
        self.embeddings = {nt: nn.Embedding(SIZES[nt], dim) for nt in extra_node_types}  # CUT
        self.conv1, self.conv2 = RelConv(dim, relations, list(SIZES)), RelConv(dim, relations, ["paper"])
        self.out = nn.Linear(dim, classes)

    def forward(self, feats, edges):
        x = {"paper": self.paper_in(feats)}
        for nt, emb in self.embeddings.items():
            x[nt] = emb.weight
        x = {t: F.relu(h) for t, h in self.conv1(x, edges).items()}
        return self.out(self.conv2(x, edges)["paper"])


def synthetic_graph(g):
    edges = {}
    for src, rel, dst, n in (("author", "writes", "paper", 300), ("paper", "written_by", "author", 300),
                             ("venue", "publishes", "paper", 120), ("paper", "in", "venue", 120)):
        edges[(src, rel, dst)] = torch.stack([torch.randint(0, SIZES[src], (n,), generator=g),
                                              torch.randint(0, SIZES[dst], (n,), generator=g)])
    y = torch.randint(0, 4, (SIZES["paper"],), generator=g)
    feats = F.one_hot(y, 4).float() @ torch.randn(4, 12, generator=g) + torch.randn(SIZES["paper"], 12, generator=g)
    return feats, edges, y


def main():
    torch.manual_seed(0)
    feats, edges, y = synthetic_graph(torch.Generator().manual_seed(2))
    model = HeteroGNN(12, 24, 4, edges.keys(), ["author", "venue"])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    train = torch.rand(len(y)) < 0.7
    for epoch in range(80):
        model.train()
        optimizer.zero_grad()
        logits = model(feats, edges)
        loss = F.cross_entropy(logits[train], y[train])
        loss.backward()
        optimizer.step()
        if epoch % 20 == 0:
            acc = (logits[~train].argmax(1) == y[~train]).float().mean().item()
            print(f"epoch {epoch} loss {loss.item():.3f} val acc {acc:.3f}")


if __name__ == "__main__":
    main()
