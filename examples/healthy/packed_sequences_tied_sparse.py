"""Healthy: variable lengths with pack_padded_sequence, tied weights, sparse embedding with SparseAdam."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

EXPECT = {"kind": None}


class LM(nn.Module):
    def __init__(self, vocab=25, d=10):
        super().__init__()
        self.user = nn.Embedding(40, d, sparse=True)
        self.embed, self.lstm, self.out = (
            nn.Embedding(vocab, d, padding_idx=0),
            nn.LSTM(d, d, 2, batch_first=True, dropout=0.1),
            nn.Linear(d, vocab, bias=False),
        )
        self.out.weight = self.embed.weight

    def forward(self, user, tokens, lengths):
        x = self.embed(tokens) + self.user(user)[:, None]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(h)


def main():
    torch.manual_seed(0)
    model = LM()
    sparse = torch.optim.SparseAdam(model.user.parameters(), lr=1e-2)
    dense = torch.optim.Adam([p for n, p in model.named_parameters() if not n.startswith("user")], lr=1e-3)
    for _ in range(8):
        lengths = torch.randint(2, 9, (5,))
        tokens = pad_sequence([torch.randint(1, 25, (n,)) for n in lengths], batch_first=True)
        logits = model(torch.randint(0, 40, (5,)), tokens[:, :-1], (lengths - 1))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
    print(loss.item())


if __name__ == "__main__":
    main()
