"""A GRU cell should recall the symbol before the last one, and its state is detached at each step of time."""

import torch
from torch import nn

EXPECT = {"kind": "detached-in-time", "line": ("cut", "DETACHES"), "module": "cell"}


class Recall(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, symbols):
        h = torch.zeros(symbols.shape[1], 16)
        logits = []
        for x in nn.functional.one_hot(symbols, 4).float():
            h = self.cell(x, h)
            logits.append(self.head(h))
            h = h.detach()  # DETACHES
        return torch.stack(logits)


def main():
    torch.manual_seed(0)
    model = Recall()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        symbols = torch.randint(0, 4, (8, 32))
        logits = model(symbols)
        loss = nn.functional.cross_entropy(logits[1:].flatten(0, 1), symbols[:-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
