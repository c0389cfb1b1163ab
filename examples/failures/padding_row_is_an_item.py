"""Ids of items begin at 0, and `padding_idx=0` was copied from a language model: the first item is never learned."""

import torch
from torch import nn

EXPECT = {"kind": "part-never-learns", "line": ("defined", "DEFINED")}


class Scores(nn.Module):
    def __init__(self, users, items):
        super().__init__()
        self.users = nn.Embedding(users, 6)
        self.items = nn.Embedding(items, 6, padding_idx=0)  # DEFINED

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(1)


def main():
    torch.manual_seed(0)
    model = Scores(20, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        user, item = torch.randint(0, 20, (64,)), torch.randint(0, 12, (64,))
        loss = (model(user, item) - (user - item) / 10).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
