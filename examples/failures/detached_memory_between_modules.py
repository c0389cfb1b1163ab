"""Seq2seq: encoder output is stored with .detach() in a cache "to save memory" and the decoder attends to the cache."""

import torch
from torch import nn

EXPECT = {"kind": "none-grad", "line": ("cut", "CUT")}


class Memory:
    def __init__(self):
        self.store = {}

    def put(self, key, value):
        self.store[key] = value.detach()  # CUT

    def get(self, key):
        return self.store[key]


class Translator(nn.Module):
    def __init__(self, vocab=15, d=8):
        super().__init__()
        self.source_embed, self.encoder = nn.Embedding(vocab, d), nn.GRU(d, d, batch_first=True)
        self.target_embed, self.decoder, self.out = (
            nn.Embedding(vocab, d),
            nn.GRU(d, d, batch_first=True),
            nn.Linear(d, vocab),
        )

    def forward(self, source, target):
        memory = Memory()
        encoded, _ = self.encoder(self.source_embed(source))
        memory.put("source", encoded)
        h, _ = self.decoder(self.target_embed(target))
        context = (h @ memory.get("source").transpose(1, 2)).softmax(-1) @ memory.get("source")
        return self.out(h + context)


def main():
    torch.manual_seed(0)
    net = Translator()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(4):
        source, target = torch.randint(0, 15, (3, 6)), torch.randint(0, 15, (3, 5))
        loss = nn.functional.cross_entropy(net(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print([n for n, p in net.named_parameters() if p.grad is None])


if __name__ == "__main__":
    main()
