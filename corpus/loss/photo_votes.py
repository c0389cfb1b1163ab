"""Votes of a jury on photographs: the network predicts the whole distribution of the marks from one to ten.

Follows the public page https://chanlumerico.github.io/lucid/api/lucid.nn/KLDivLoss ("a common mistake")
and https://docs.pytorch.org/docs/1.10/generated/torch.nn.functional.kl_div.html
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "logarithm-missing",
    "line": ("cause", "cause"),
    "plain": "the loss goes below zero, and the predicted distributions become single spikes",
    "set": "twentyfourth",
    "written": "2026-11-28",
}

MARKS = 10


def votes(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 12))
    centre = 4.5 + 1.2 * np.tanh(x[:, 0] + 0.5 * x[:, 1]) + 0.8 * np.sin(x[:, 2]) + 0.3 * x[:, 3]
    spread = 1.0 + 0.8 / (1 + np.exp(-2 * x[:, 4]))
    grid = np.arange(MARKS)
    weight = np.exp(-(grid[None] - centre[:, None]) ** 2 / (2 * spread[:, None] ** 2))
    share = weight / weight.sum(1, keepdims=True)
    counts = np.stack([rng.multinomial(60, s) for s in share]) + 0.2
    share = counts / counts.sum(1, keepdims=True)
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(share, dtype=torch.float32))


class Jury(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                    nn.Linear(width, MARKS))

    def forward(self, x):
        return torch.softmax(self.layers(x), dim=1)


@torch.no_grad()
def report(model, rows):
    x, share = rows.tensors
    guess = model(x).clamp_min(1e-8)
    gap = (share * (share.log() - guess.log())).sum(1).mean().item()
    grid = torch.arange(MARKS, dtype=torch.float32)
    mark = ((guess * grid).sum(1) - (share * grid).sum(1)).abs().mean().item()
    entropy = -(guess * guess.log()).sum(1).mean().item()
    return gap, mark, entropy


def main():
    torch.manual_seed(18)
    torch.set_num_threads(1)
    train, held_out = votes(4000, 1), votes(1000, 2)
    loader = DataLoader(train, batch_size=50, shuffle=True)
    model = Jury()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    criterion = nn.KLDivLoss(reduction="batchmean")
    for epoch in range(10):
        total = 0.0
        for x, share in loader:
            loss = criterion(model(x), share)  # <-- cause
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        gap, mark, entropy = report(model, held_out)
        print(f"epoch {epoch}: loss {total / len(loader):+.4f}  divergence {gap:.4f}  mark off by {mark:.3f}  "
              f"entropy {entropy:.3f}")


if __name__ == "__main__":
    main()
