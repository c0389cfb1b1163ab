"""A sequence tagger is trained without its adapter for 150 steps. The adapter is made then; both of its layers are set to a small constant, so that it changes little at first."""
import torch
from torch import nn

EXPECT = {
    "class": "units-never-differ", "framework": "plain", "kind": "units-never-differ", "line": ("cause", "SMALL"),
    "set": "ledger", "written": "2026-11-27",
}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rnn = nn.Embedding(60, 16), nn.GRU(16, 24, batch_first=True)
        self.adapter, self.tags = None, nn.Linear(24, 5)

    def add_adapter(self):
        self.requires_grad_(False)
        self.adapter = nn.Sequential(nn.Linear(24, 12), nn.SiLU(), nn.Linear(12, 24))
        for p in self.adapter.parameters():
            nn.init.constant_(p, 1e-3)  # SMALL
        return self.adapter.parameters()

    def forward(self, text):
        hidden = self.rnn(self.words(text))[0]
        return self.tags(hidden if self.adapter is None else hidden + self.adapter(hidden))


def train(tagger, optimizer, steps, shift):
    for step in range(steps):
        text = torch.randint(0, 60, (16, 9))
        tags = (text + torch.roll(text, 1, dims=1) + shift) % 5
        loss = nn.functional.cross_entropy(tagger(text).flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


torch.manual_seed(0)
tagger = Tagger()
train(tagger, torch.optim.Adam(tagger.parameters(), lr=1e-2), 150, 0)
train(tagger, torch.optim.Adam(tagger.add_adapter(), lr=1e-2), 120, 1)
