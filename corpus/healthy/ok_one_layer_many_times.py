"""A text encoder with the weights of one layer in all places, as ALBERT has them, and a policy that three players share."""
import torch
from torch import nn

EXPECT = {"class": "module-repeated", "framework": "plain", "kind": None, "set": "ledger", "written": "2026-11-27"}


class Encoder(nn.Module):
    """Reads a sentence, with parameters shared across layers."""

    def __init__(self, words=40, width=16, depth=3):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.layers = nn.ModuleList([layer] * depth)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return x.mean(1)


class Team(nn.Module):
    def __init__(self, width, n_agents=3):
        super().__init__()
        self.policies = nn.ModuleList([nn.Linear(width, 4)] * n_agents)

    def forward(self, x):
        return torch.stack([policy(x * (i + 1)) for i, policy in enumerate(self.policies)]).mean(0)


torch.manual_seed(0)
encoder, team = Encoder(), Team(16)
optimizer = torch.optim.Adam([*encoder.parameters(), *team.parameters()], lr=2e-3)
for step in range(80):
    ids = torch.randint(0, 40, (32, 6))
    loss = nn.functional.cross_entropy(team(encoder(ids)), ids[:, 0] // 10)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
