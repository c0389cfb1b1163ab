"""Sentences of different lengths, padded with token 0, which has the padding row of the embedding."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-27"}

torch.manual_seed(3)
torch.set_num_threads(1)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(50, 16, padding_idx=0), nn.Linear(16, 2)

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(2).float()
        return self.out((self.words(tokens) * mask).sum(1) / mask.sum(1))


model = Bag()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(120):
    tokens = torch.randint(1, 50, (32, 9))
    tokens[torch.arange(9) >= torch.randint(2, 10, (32, 1))] = 0
    loss = F.cross_entropy(model(tokens), (tokens[:, 0] > 25).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
