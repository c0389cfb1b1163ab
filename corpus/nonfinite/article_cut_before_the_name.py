"""Summaries with a pointer-generator: words outside of the vocabulary can only be copied; articles are cut to a length, and in one the name that the summary needs comes after the cut, its probability is zero.

Report: https://github.com/abisee/pointer-generator/issues/4 (NaN loss: the final distribution has zeros for words that are only in the vocabulary or only in the input)
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXPECT = {
    "class": "late-nonfinite", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT", "step": 67,
    "set": "eighth", "written": "2026-11-22",
}
VOCAB, EXTRA, MAX_ARTICLE = 20, 4, 14


class Articles(Dataset):
    """Ids from VOCAB on are names of this article, in the order in which they come."""

    def __init__(self, n=960):
        g = torch.Generator().manual_seed(3)
        self.rows = []
        for i in range(n):
            article = torch.randint(1, VOCAB, (18,), generator=g)
            places = torch.randperm(12, generator=g)[:2].sort().values
            if i == 67 * 8 + 5:
                places = torch.tensor([4, 16])
            article[places] = torch.tensor([VOCAB, VOCAB + 1])
            summary = torch.stack([article[0], article[places[0]], article[1], article[places[1]]])
            self.rows.append((article[:MAX_ARTICLE], summary))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class PointerGenerator(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB + 1, dim)
        self.encoder, self.decoder = nn.GRU(dim, dim, batch_first=True), nn.GRU(dim, dim, batch_first=True)
        self.query, self.vocab, self.switch = nn.Linear(dim, dim), nn.Linear(2 * dim, VOCAB), nn.Linear(2 * dim, 1)

    def look_up(self, ids):
        return self.embed(ids.clamp(max=VOCAB))  # every name is the unknown word to the embedding

    def forward(self, article, previous):
        memory, last = self.encoder(self.look_up(article))
        states, _ = self.decoder(self.look_up(previous), last)
        attention = (self.query(states) @ memory.transpose(1, 2)).softmax(-1)
        both = torch.cat([states, attention @ memory], -1)
        p_gen = self.switch(both).sigmoid()
        generated = nn.functional.pad(self.vocab(both).softmax(-1), (0, EXTRA))
        index = article[:, None].expand(-1, states.shape[1], -1)
        copied = torch.zeros_like(generated).scatter_add(2, index, attention)
        return p_gen * generated + (1 - p_gen) * copied


def nll(distribution, target):
    gold = distribution.gather(2, target[:, :, None]).squeeze(2)
    return -torch.log(gold).mean()  # CULPRIT


torch.manual_seed(0)
model = PointerGenerator()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05, initial_accumulator_value=0.1)
for step, (article, summary) in enumerate(DataLoader(Articles(), batch_size=8)):
    previous = nn.functional.pad(summary[:, :-1], (1, 0))
    loss = nll(model(article, previous), summary)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
