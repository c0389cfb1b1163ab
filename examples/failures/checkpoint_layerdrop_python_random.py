"""LayerDrop decides with Python's random inside the checkpointed function; the recomputation decides otherwise."""

import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

EXPECT = {"kind": "checkpoint-mismatch", "line": ("cause", "CULPRIT")}


class Encoder(nn.Module):
    def __init__(self, width=12, depth=6, layerdrop=0.4):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.layerdrop = layerdrop

    def forward(self, h):
        for layer in self.layers:
            if self.training and random.random() < self.layerdrop:  # CULPRIT
                continue
            h = h + torch.tanh(layer(h))  # CULPRIT
        return h


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.encoder, self.ctc = nn.Linear(5, 12), Encoder(), nn.Linear(12, 7)

    def forward(self, x):
        h = self.proj(x)
        h = checkpoint(self.encoder, h, use_reentrant=False)  # REGION
        return self.ctc(h)


def main():
    random.seed(1)
    torch.manual_seed(0)
    model = SpeechModel()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(5):
        loss = nn.functional.cross_entropy(model(torch.randn(9, 5)), torch.randint(0, 7, (9,)))
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == "__main__":
    main()
