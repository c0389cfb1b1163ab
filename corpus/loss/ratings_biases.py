"""A recommender by matrix factorisation with biases of users and films. The error in training stays where a constant
would have it. The factors' product has shape (B,), the biases come out of their embeddings as (B, 1), and adding them
gives a (B, B) table."""
import torch
import torch.nn as nn

EXPECT = {
    "class": "silent broadcasting in a loss",
    "kind": "silent-broadcast",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}

torch.manual_seed(0)
torch.set_num_threads(1)
USERS, FILMS = 80, 60


class Factors(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.user, self.film = nn.Embedding(USERS, dim), nn.Embedding(FILMS, dim)
        self.user_bias, self.film_bias = nn.Embedding(USERS, 1), nn.Embedding(FILMS, 1)
        self.mean = nn.Parameter(torch.zeros(()))

    def forward(self, users, films):
        match = (self.user(users) * self.film(films)).sum(dim=1)
        return self.mean + match + self.user_bias(users) + self.film_bias(films)  # <-- cause


taste, kind = torch.randn(USERS, 4), torch.randn(FILMS, 4)
users, films = torch.randint(0, USERS, (4000,)), torch.randint(0, FILMS, (4000,))
ratings = (taste[users] * kind[films]).sum(1) + 0.3 * torch.randn(4000)
model = Factors()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=1e-4)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(users, films, ratings), 128, shuffle=True)
for epoch in range(4):
    total = 0.0
    for u, f, r in loader:
        loss = ((model(u, f) - r) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / len(loader)
    print(f"epoch {epoch}  mse {total:.3f}  variance {ratings.var().item():.3f}")
