"""Outputs that the loss does not use, as meant: a vocabulary padded to a multiple of 32, classes that come later and are cut
off until then, and the last position of each sequence, which has no target."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EXPECT = {"class": "healthy", "kind": "none", "set": "ledger", "written": "2026-11-28"}

torch.manual_seed(2)
torch.set_num_threads(1)
WORDS, PADDED = 53, 64


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(PADDED, 24)
        self.cell = nn.GRU(24, 32, batch_first=True)
        self.mix = nn.Linear(32, 32)
        self.out = nn.Linear(32, PADDED)

    def forward(self, ids):
        h = self.mix(self.cell(self.words(ids))[0])
        return self.out(torch.relu(h[:, :-1]))[..., :WORDS]


class Incremental(nn.Module):
    def __init__(self, classes=12):
        super().__init__()
        self.body, self.head = nn.Linear(10, 32), nn.Linear(32, classes)

    def forward(self, x, seen):
        return self.head(F.gelu(self.body(x)))[:, :seen]


writer, grower = Writer(), Incremental()
optimizer = torch.optim.Adam([*writer.parameters(), *grower.parameters()], lr=3e-3)
centres = torch.randn(12, 10)
for step in range(220):
    ids = (torch.randint(0, WORDS, (16, 1)) + 3 * torch.arange(9)) % WORDS
    seen = 4 + 4 * (step // 100)
    kind = torch.randint(0, seen, (32,))
    loss = F.cross_entropy(writer(ids).flatten(0, 1), ids[:, 1:].flatten())
    loss = loss + F.cross_entropy(grower(centres[kind] + 0.3 * torch.randn(32, 10), seen), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
