"""The padding mask of an attention is True for the words, which it then ignores."""

import torch
from torch import nn

EXPECT = {"kind": "mask-inverted", "line": ("cause", "MASK")}
PAD = 0


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 16, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(12, 16))
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.out = nn.Linear(16, 2)

    def forward(self, ids):
        hidden = self.words(ids) + self.positions
        mask = ids != PAD  # MASK
        read, _ = self.attention(hidden, hidden, hidden, key_padding_mask=mask)
        return self.out(hidden[:, 0] + read[:, 0])


def main():
    torch.manual_seed(0)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        ids = torch.randint(1, 30, (8, 12))
        ids[torch.arange(12) >= torch.randint(4, 12, (8, 1))] = PAD
        loss = nn.functional.cross_entropy(model(ids), (ids == 7).any(1).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
