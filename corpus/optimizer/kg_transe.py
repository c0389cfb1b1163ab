"""TransE embeddings of a small knowledge graph; after the first normalisation the entity vectors are no longer trained.
Report: https://discuss.pytorch.org/t/set-nn-parameter-during-training/178163 (setting an nn.Parameter during training: change it in place under no_grad, so that the optimizer goes on updating it); https://github.com/uma-pi1/kge/pull/119 (TransE normalises the entities after each epoch, there correctly through the data)

From the second epoch on the optimizer holds the old entity tensor: `entities moved` is 0.0 in every later epoch,
the loss stays near its level after epoch 1, and the mean rank ends well behind a copy that normalises in place.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "framework": "plain", "kind": "parameter-not-in-optimizer", "line": ("replaced", "CAUSE"),
    "what": "normalize_entities puts a new nn.Parameter into the embedding, the optimizer still holds the old one, so the entity embeddings stop training after the first epoch; normalise in place under no_grad (weight.copy_ / weight.data)",
    "set": "twentysecond", "written": "2026-11-28",
}

N_ENT, N_REL, DIM = 120, 4, 24


class TransE(nn.Module):
    def __init__(self):
        super().__init__()
        self.ent = nn.Embedding(N_ENT, DIM)
        self.rel = nn.Embedding(N_REL, DIM)
        nn.init.xavier_uniform_(self.ent.weight)
        nn.init.xavier_uniform_(self.rel.weight)

    def normalize_entities(self):
        self.ent.weight = nn.Parameter(F.normalize(self.ent.weight.detach(), dim=-1))  # CAUSE

    def score(self, h, r, t):
        return (self.ent(h) + self.rel(r) - self.ent(t)).norm(dim=-1)


def build_graph():
    shifts = torch.tensor([1, 7, 30, 55])
    h = torch.arange(N_ENT).repeat_interleave(N_REL)
    r = torch.arange(N_REL).repeat(N_ENT)
    return torch.stack([h, r, (h + shifts[r]) % N_ENT], dim=1)


def mean_rank(model, triples):
    with torch.no_grad():
        h, r, t = triples.T
        dist = torch.cdist(model.ent(h) + model.rel(r), model.ent.weight)
        return (dist < dist.gather(1, t[:, None])).sum(1).float().mean().item() + 1


torch.manual_seed(5)
triples = build_graph()
model = TransE()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

for epoch in range(7):
    start = model.ent.weight.detach().clone()
    running = 0.0
    for _ in range(50):
        h, r, t = triples[torch.randint(0, len(triples), (96,))].T
        corrupt = torch.randint(0, N_ENT, (96,))
        flip = torch.rand(96) < 0.5
        neg_h, neg_t = torch.where(flip, corrupt, h), torch.where(flip, t, corrupt)
        loss = F.relu(0.8 + model.score(h, r, t) - model.score(neg_h, r, neg_t)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item() / 50
    moved = (model.ent.weight.detach() - start).abs().max().item()
    print(f"epoch {epoch}: loss {running:.3f} entities moved {moved:.3f} mean rank {mean_rank(model, triples):.1f}")
    model.normalize_entities()
