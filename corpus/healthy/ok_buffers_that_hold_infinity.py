"""Infinities and NaN in buffers that are meant: a causal mask that is made again when sequences grow, the best loss so far
that begins at infinity, and a table of scores that is NaN where nothing was scored yet."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(2)
torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.mix, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("mask", torch.zeros(1, 1), persistent=False)
        self.register_buffer("best", torch.tensor(float("inf")))
        self.register_buffer("scores", torch.full((40,), float("nan")))

    def forward(self, x):
        n = x.shape[1]
        if self.mask.shape[0] < n:
            self.mask = torch.full((n, n), float("-inf")).triu(1)
        q, k, v = self.mix(x).chunk(3, -1)
        weights = (q @ k.transpose(1, 2) / 4 + self.mask[:n, :n]).softmax(-1)
        return self.out(weights @ v)


model = Attention()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(90):
    x = torch.randn(8, 1 + step // 10, 16)
    loss = F.mse_loss(model(x), x.cumsum(1) / 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.best.fill_(min(model.best.item(), loss.item()))
        model.scores[step % 30] = loss
print(f"best {model.best.item():.3f}, {int(model.scores.isnan().sum())} of 40 without a score")
