"""Healthy: a residual branch, a low-rank update, a last layer and the positions begin as zeros or ones, and learn: their rows get different gradients. A constant hidden layer is followed by dropout, which makes its units differ."""
import torch
from torch import nn

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}


class Melody(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.notes = nn.Embedding(20, width)
        self.places = nn.Parameter(torch.zeros(12, width))
        self.attention = nn.MultiheadAttention(width, 3, batch_first=True)
        self.branch = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.gain = nn.Parameter(torch.ones(width, 1))
        self.down, self.up = nn.Parameter(torch.randn(4, width) / 5), nn.Parameter(torch.zeros(width, 4))
        self.wide, self.narrow = nn.Linear(width, 32), nn.Linear(32, width)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(width, 20)
        nn.init.zeros_(self.branch[2].weight)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.wide.weight, 0.05)
        nn.init.zeros_(self.wide.bias)

    def forward(self, tune):
        x = self.notes(tune) + self.places
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x + self.branch(x) * self.gain[:, 0]
        x = x + x @ self.down.T @ self.up.T
        x = x + self.narrow(self.drop(torch.tanh(self.wide(x))))
        return self.head(x)


torch.manual_seed(0)
model = Melody()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(120):
    tune = (torch.randint(0, 20, (16, 1)) + 3 * torch.arange(13)) % 20
    loss = nn.functional.cross_entropy(model(tune[:, :-1]).flatten(0, 1), tune[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
