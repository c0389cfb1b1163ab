"""A relational graph network ranks films for people: every kind of edge has its own linear map, kept in a plain dictionary of the layer, and those maps are never among the parameters.

Report: https://github.com/pytorch/pytorch/issues/632 (self.list_relations[rel] = nn.Linear(...) in a dictionary: such parameters are not registered in the list of the module's parameters)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "silent", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "eleventh", "written": "2026-11-23",
}
RELATIONS = {"likes": ("person", "film"), "liked by": ("film", "person"), "made by": ("director", "film"), "made": ("film", "director")}


class RelationalLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.own = nn.Linear(width, width)
        self.by_relation = {}
        for relation in RELATIONS:
            self.by_relation[relation] = nn.Linear(width, width, bias=False)  # CUT

    def forward(self, h, edges):
        out = {kind: self.own(x) for kind, x in h.items()}
        for relation, (source, target) in RELATIONS.items():
            start, end = edges[relation]
            message = self.by_relation[relation](h[source])[start]
            degree = torch.bincount(end, minlength=len(h[target])).clamp(min=1)
            total = torch.zeros_like(out[target]).index_add(0, end, message)
            out[target] = out[target] + total / degree[:, None]
        return {kind: F.relu(x) for kind, x in out.items()}


class Recommender(nn.Module):
    def __init__(self, counts, width=16, layers=2):
        super().__init__()
        self.start = nn.ModuleDict({kind: nn.Embedding(count, width) for kind, count in counts.items()})
        self.layers = nn.ModuleList(RelationalLayer(width) for _ in range(layers))

    def forward(self, edges):
        h = {kind: table.weight for kind, table in self.start.items()}
        for layer in self.layers:
            h = layer(h, edges)
        return h


def catalogue(people=40, films=60, directors=8):
    taste, style = torch.randn(people, 3), torch.randn(directors, 3)
    author = torch.randint(0, directors, (films,))
    score = taste @ (style[author] + 0.3 * torch.randn(films, 3)).T
    person, film = (score > 1.0).nonzero().T
    keep = torch.rand(len(person)) < 0.5
    edges = {"likes": (person[keep], film[keep]), "liked by": (film[keep], person[keep])}
    edges |= {"made by": (author, torch.arange(films)), "made": (torch.arange(films), author)}
    return edges, person[~keep], film[~keep]


torch.manual_seed(0)
edges, person, film = catalogue()
model = Recommender({"person": 40, "film": 60, "director": 8})
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-5)
for epoch in range(60):
    h = model(edges)
    other = torch.randint(0, 60, film.shape)
    better = (h["person"][person] * (h["film"][film] - h["film"][other])).sum(-1)
    loss = F.softplus(-better).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print(f"epoch {epoch} ranking loss {loss.item():.4f}")
