"""Podcast recommendations from listening events: matrix factors with a pairwise ranking loss.

Report: https://github.com/facebookresearch/fairseq/issues/2205
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "plateau-wrong-direction",
    "line": ("cause", "MADE"),
    "plain": "NDCG improves in the first epochs and then freezes at a low value; the learning rate goes to nearly nothing",
    "late": True,
    "set": "twentythird",
    "written": "2026-11-28",
}

USERS, SHOWS = 400, 300


def make_events(seed=0, per_user=24):
    rng = np.random.default_rng(seed)
    tastes = rng.normal(size=(USERS, 6))
    topics = rng.normal(size=(SHOWS, 6))
    train, held_out = [], []
    for user in range(USERS):
        scores = tastes[user] @ topics.T + rng.gumbel(scale=0.7, size=SHOWS)
        shows = rng.permutation(np.argsort(-scores)[:per_user])
        train += [(user, s) for s in shows[:-6]]
        held_out.append(shows[-6:])
    return np.array(train), np.array(held_out)


class Factors(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.user = nn.Embedding(USERS, width)
        self.show = nn.Embedding(SHOWS, width)
        self.bias = nn.Embedding(SHOWS, 1)
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.show.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)

    def forward(self, users, shows):
        return (self.user(users) * self.show(shows)).sum(-1) + self.bias(shows).squeeze(-1)

    def all_scores(self):
        return self.user.weight @ self.show.weight.T + self.bias.weight.T


@torch.no_grad()
def ndcg(model, train, held_out, k=10):
    scores = model.all_scores()
    scores[train[:, 0], train[:, 1]] = -torch.inf
    top = scores.topk(k, dim=1).indices.numpy()
    gains = 1 / np.log2(np.arange(2, k + 2))
    best = gains[:held_out.shape[1]].sum()
    return float(np.mean([(np.isin(top[u], held_out[u]) * gains).sum() / best for u in range(USERS)]))


def main():
    torch.manual_seed(0)
    train, held_out = make_events()
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(TensorDataset(torch.from_numpy(train)), batch_size=128, shuffle=True, generator=generator)
    model = Factors()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2)  # MADE
    for epoch in range(40):
        total = 0.0
        for (pairs,) in loader:
            users, liked = pairs[:, 0], pairs[:, 1]
            other = torch.randint(SHOWS, liked.shape, generator=generator)
            loss = -F.logsigmoid(model(users, liked) - model(users, other)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        quality = ndcg(model, train, held_out)
        scheduler.step(quality)
        if epoch % 4 == 3:
            print(f"epoch {epoch:2d}  loss {total / len(loader):.4f}  NDCG@10 {quality:.4f}  lr {optimizer.param_groups[0]['lr']:.2e}")


if __name__ == "__main__":
    main()
