"""Adversarial training of an embedding: the backup is the weight's own memory, so the attack is not taken back."""

import torch
from torch import nn

EXPECT = {"kind": "weight-overwritten", "line": ("mutated", "ATTACKS")}


def main():
    torch.manual_seed(0)
    table, head = nn.Embedding(20, 16), nn.Linear(16, 2)
    optimizer = torch.optim.Adam([*table.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(24):
        words = torch.randint(0, 20, (32, 6))
        labels = (words < 5).any(dim=1).long()
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(table(words).mean(dim=1)), labels).backward()
        backup = table.weight.data
        table.weight.data.add_(0.5 * table.weight.grad / table.weight.grad.norm())  # ATTACKS
        nn.functional.cross_entropy(head(table(words).mean(dim=1)), labels).backward()
        table.weight.data = backup
        optimizer.step()


if __name__ == "__main__":
    main()
