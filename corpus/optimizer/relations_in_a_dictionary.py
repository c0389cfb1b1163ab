"""Typed graph of authors, papers and venues: each relation has a layer and a weight for its messages, kept in dictionaries by relation; what is trained are the embeddings and the classifier alone.

Report: https://github.com/pytorch/pytorch/issues/632 (linear layers and weights per relation in a dictionary are not among the parameters)
"""
import torch
from torch import nn
from torch.nn import functional as F

EXPECT = {
    "class": "unregistered", "kind": "unregistered-parameter", "cut_marker": "CUT",
    "set": "ninth", "written": "2026-11-23",
}
NODES = {"author": 60, "paper": 120, "venue": 6}
RELATIONS = [("author", "writes", "paper"), ("paper", "written_by", "author"), ("paper", "appears_at", "venue"), ("venue", "hosts", "paper")]


class RelationalLayer(nn.Module):
    def __init__(self, dim, relations):
        super().__init__()
        self.relations = relations
        self.message, self.strength = {}, {}
        for relation in relations:
            self.message[relation] = nn.Linear(dim, dim, bias=False)  # CUT
            self.strength[relation] = nn.Parameter(torch.ones(1))  # CUT
        self.own = nn.Linear(dim, dim)

    def forward(self, x, edges):
        out = {kind: self.own(h) for kind, h in x.items()}
        for relation in self.relations:
            source, _, target = relation
            src, dst = edges[relation]
            sent = self.strength[relation] * self.message[relation](x[source])[src]
            total = torch.zeros_like(out[target]).index_add(0, dst, sent)
            count = torch.bincount(dst, minlength=len(total)).clamp(min=1)
            out[target] = out[target] + total / count[:, None]
        return {kind: F.relu(h) for kind, h in out.items()}


class PaperClassifier(nn.Module):
    def __init__(self, dim=16, classes=3):
        super().__init__()
        self.embed = nn.ModuleDict({kind: nn.Embedding(n, dim) for kind, n in NODES.items()})
        self.layers = nn.ModuleList(RelationalLayer(dim, RELATIONS) for _ in range(2))
        self.out = nn.Linear(dim, classes)

    def forward(self, edges):
        x = {kind: table.weight for kind, table in self.embed.items()}
        for layer in self.layers:
            x = layer(x, edges)
        return self.out(x["paper"])


def library():
    field = torch.arange(NODES["paper"]) % 3
    writer = torch.randint(0, NODES["author"] // 3, (NODES["paper"], 2)) * 3 + field[:, None]
    paper = torch.arange(NODES["paper"]).repeat_interleave(2)
    venue = torch.randint(0, 2, (NODES["paper"],)) * 3 + field
    once = torch.arange(NODES["paper"])
    edges = {RELATIONS[0]: (writer.flatten(), paper), RELATIONS[1]: (paper, writer.flatten()), RELATIONS[2]: (once, venue), RELATIONS[3]: (venue, once)}
    return edges, field


torch.manual_seed(0)
edges, field = library()
model = PaperClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
known = torch.rand(len(field)) < 0.3
first = model.layers[0].message[RELATIONS[0]].weight
before = first.detach().clone()
for step in range(100):
    logits = model(edges)
    loss = F.cross_entropy(logits[known], field[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item(), (logits.argmax(1) == field)[~known].float().mean().item())
print("layer of the first relation moved by", (first - before).abs().max().item(), "with a gradient of", first.grad.abs().max().item())
