"""Matrix factorisation for ratings. The mean error goes down nicely, but for the one most popular item and for one user the
predictions never leave the global mean. Both embeddings were made with padding_idx=0, copied from a language model,
while here the ids start at 0 and row 0 is a real user and a real item."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {
    "class": "part of a parameter never learns",
    "kind": "part-never-learns",
    "line": ["defined", "cause"],
    "what": "padding_idx=0 makes row 0 of the embedding tables zero and without gradient although id 0 is a real item and user, so these rows never move.",
    "symptom": "no error; error of item 0 (and user 0) stays high while the others go down",
    "set": "sixteenth",
    "written": "2026-11-27",
}

torch.manual_seed(19)
torch.set_num_threads(1)
USERS, ITEMS, RANK = 120, 80, 6


class Factorisation(nn.Module):
    def __init__(self, n_users, n_items, dim):
        super().__init__()
        def table(rows):
            emb = nn.Embedding(rows, dim, padding_idx=0)  # <-- cause
            with torch.no_grad():
                emb.weight[1:].normal_(0, 0.3)
            return emb
        self.user_factors = table(n_users)
        self.item_factors = table(n_items)
        self.bias = nn.Parameter(torch.tensor(3.0))

    def forward(self, users, items):
        return self.bias + (self.user_factors(users) * self.item_factors(items)).sum(dim=-1)


def simulate_ratings(n):
    """Popular items (low ids) are rated most often."""
    true_u = torch.randn(USERS, RANK) * 0.7
    true_i = torch.randn(ITEMS, RANK) * 0.7
    popularity = 1.0 / (torch.arange(ITEMS) + 2.0)
    users = torch.randint(0, USERS, (n,))
    items = torch.multinomial(popularity, n, replacement=True)
    ratings = 3.5 + (true_u[users] * true_i[items]).sum(1) + 0.1 * torch.randn(n)
    return users, items, ratings


def rmse_of(model, users, items, ratings, pick):
    with torch.no_grad():
        return F.mse_loss(model(users[pick], items[pick]), ratings[pick]).sqrt().item()


users, items, ratings = simulate_ratings(12000)
model = Factorisation(USERS, ITEMS, RANK)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

for epoch in range(8):
    order = torch.randperm(len(users))
    for i in range(0, len(users), 400):
        idx = order[i:i + 400]
        loss = F.mse_loss(model(users[idx], items[idx]), ratings[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    everything = torch.ones(len(users), dtype=torch.bool)
    print(f"epoch {epoch}  rmse {rmse_of(model, users, items, ratings, everything):.3f}"
          f"  item 0 ({int((items == 0).sum())} ratings): {rmse_of(model, users, items, ratings, items == 0):.3f}"
          f"  item 1: {rmse_of(model, users, items, ratings, items == 1):.3f}"
          f"  user 0: {rmse_of(model, users, items, ratings, users == 0):.3f}")
