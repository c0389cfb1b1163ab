"""LBFGS on a graph network with self loops, and a deep copy of the best state."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "kind": None,
    "set": "twentyninth",
    "written": "2026-11-29",
}



def village_map(n=600, groups=5, seed=0):
    """Houses in five parishes; footpaths mostly stay inside a parish, a few houses have none."""
    gen = torch.Generator().manual_seed(seed)
    parish = torch.randint(0, groups, (n,), generator=gen)
    same = parish.unsqueeze(0) == parish.unsqueeze(1)
    p = torch.where(same, 0.035, 0.004)
    upper = torch.triu(torch.rand(n, n, generator=gen) < p, diagonal=1)
    lonely = torch.randperm(n, generator=gen)[:12]
    upper[lonely] = False
    upper[:, lonely] = False
    centres = torch.randn(groups, 16, generator=gen)
    x = 0.5 * centres[parish] + torch.randn(n, 16, generator=gen)
    order = torch.randperm(n, generator=gen)
    masks = {"train": order[:60], "valid": order[60:160], "test": order[160:]}
    return x, parish, upper.nonzero().T, masks


def propagation(edges, n):
    """Symmetric normalisation with self loops, as a sparse matrix."""
    loops = torch.arange(n)
    row = torch.cat([edges[0], edges[1], loops])
    col = torch.cat([edges[1], edges[0], loops])
    degree = torch.zeros(n).index_add_(0, row, torch.ones(len(row)))
    value = degree[row].rsqrt() * degree[col].rsqrt()
    return torch.sparse_coo_tensor(torch.stack([row, col]), value, (n, n)).coalesce()


class Jump(nn.Module):
    """Personalised propagation: a small net per house, then several rounds over the paths."""

    def __init__(self, inputs, groups, width=24, rounds=6, back=0.15):
        super().__init__()
        self.inner = nn.Linear(inputs, width)
        self.outer = nn.Linear(width, groups)
        self.rounds, self.back = rounds, back
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, x, adj):
        h = self.outer(torch.tanh(self.inner(x)))
        z = h
        for _ in range(self.rounds):
            z = (1 - self.back) * torch.sparse.mm(adj, z) + self.back * h
        return z * self.scale


class PathClassifier:
    def __init__(self, decay=3e-3, steps=60):
        self.decay, self.steps = decay, steps

    def fit(self, x, y, edges, masks):
        self.adj = propagation(edges, len(x))
        self.model = Jump(x.shape[1], int(y.max()) + 1)
        opt = torch.optim.LBFGS(
            self.model.parameters(), lr=0.5, max_iter=4, history_size=8, line_search_fn="strong_wolfe"
        )
        train = masks["train"]
        best, kept = -1.0, None

        def objective():
            logits = self.model(x, self.adj)
            penalty = sum(p.pow(2).sum() for n, p in self.model.named_parameters() if "weight" in n)
            return F.cross_entropy(logits[train], y[train]) + self.decay * penalty

        def closure():
            opt.zero_grad()
            loss = objective()
            loss.backward()
            return loss

        for step in range(self.steps):
            loss = opt.step(closure)
            valid = self.accuracy(x, y, masks["valid"])
            if valid > best:
                best, kept = valid, copy.deepcopy(self.model.state_dict())
            if (step + 1) % 10 == 0:
                print(f"step {step + 1} loss {loss.item():.4f} valid {valid:.3f}")
        self.model.load_state_dict(kept)
        return self

    @torch.no_grad()
    def accuracy(self, x, y, rows):
        return (self.model(x, self.adj)[rows].argmax(1) == y[rows]).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    x, y, edges, masks = village_map()
    clf = PathClassifier().fit(x, y, edges, masks)
    print(f"test accuracy {clf.accuracy(x, y, masks['test']):.3f}")
