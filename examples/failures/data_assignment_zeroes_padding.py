"""Padding positions are zeroed with h.data[mask] = 0 "so that autograd does not see it", after tanh saved its output."""

import torch
from torch import nn

EXPECT = {"kind": "silent-mutation", "line": ("mutated", "MUTATES"), "module": "encoder"}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Embedding(20, 6), nn.Linear(6, 6)

    def forward(self, tokens):
        h = torch.tanh(self.mix(self.embed(tokens)))  # SAVES
        pad = tokens == 0
        h.data[pad] = 0.0  # MUTATES
        return h


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.out = Encoder(), nn.Linear(6, 4)

    def forward(self, tokens):
        return self.out(self.encoder(tokens))


def main():
    torch.manual_seed(0)
    model = Tagger()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        tokens = torch.randint(0, 20, (4, 7))
        tokens[:, 5:] = 0
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), torch.randint(0, 4, (28,)))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return "done"


if __name__ == "__main__":
    print(main())
