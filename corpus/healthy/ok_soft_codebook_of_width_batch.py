"""As many learned centres as samples in a batch, distances written out with a column of norms, and a critic whose values
have the shape of the returns: sizes that are equal by chance."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"kind": None, "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(3)
torch.set_num_threads(1)
WIDTH = 16


class SoftBins(nn.Module):
    """Soft assignment of a number to WIDTH bins: the batch has WIDTH numbers, too."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(5, 1)
        self.centres = nn.Parameter(torch.linspace(-2, 2, WIDTH))
        self.register_buffer("edges", torch.linspace(-2, 2, WIDTH))
        self.values = nn.Linear(WIDTH, 1)

    def forward(self, x):
        z = self.encode(x)
        soft = F.softmax(-((z - self.centres) ** 2), dim=1)
        ordinal = torch.sigmoid(4 * (z - self.edges))
        return self.values(soft), ordinal


model = SoftBins()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(200):
    x = torch.randn(WIDTH, 5)
    returns = x.sum(1)
    values, ordinal = model(x)
    target = (returns[:, None] > model.edges).float()
    squared = values.pow(2) + returns.pow(2) - 2 * values @ returns[None, :]
    advantage = returns - values.squeeze(-1)
    loss = advantage.pow(2).mean() + F.binary_cross_entropy(ordinal, target) + 0.01 * squared.diagonal().mean()
    loss = loss + 0.01 * squared.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
