"""Next song from the last songs heard: a large table of songs with sparse gradients and a small network on top.

What looks suspicious: in each step nearly all rows of the table get no gradient and stay as they are, the row of the
filler song is zero for ever, and there are two optimizers, one of them without any momentum on rows not seen. It is
right: the table is made with sparse=True and padding_idx, and SparseAdam updates just the rows of the songs heard.
Question of that kind: no report
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none",
    "plain": "The loss falls and the hit rate rises.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

SONGS, STYLES, HEARD = 3000, 12, 8
FILLER = 0


def make_habits(count, seed):
    style_of = np.random.default_rng(0).integers(0, STYLES, SONGS)
    by_style = [np.flatnonzero((style_of == style) & (np.arange(SONGS) != FILLER)) for style in range(STYLES)]
    rng = np.random.default_rng(seed)
    heard = np.full((count, HEARD), FILLER)
    following = np.zeros(count, dtype=np.int64)
    for row in range(count):
        style = rng.integers(STYLES)
        songs = by_style[style]
        popular = np.minimum(rng.exponential(len(songs) / 6, HEARD).astype(int), len(songs) - 1)
        length = rng.integers(3, HEARD + 1)
        heard[row, HEARD - length:] = songs[popular][:length]
        following[row] = (style + 1) % STYLES if rng.random() < 0.1 else style
    return TensorDataset(torch.from_numpy(heard), torch.from_numpy(following))


class HabitNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.songs = nn.Embedding(SONGS, width, padding_idx=FILLER, sparse=True)
        self.top = nn.Sequential(nn.Linear(width, 48), nn.ReLU(), nn.Linear(48, STYLES))

    def forward(self, heard):
        present = (heard != FILLER).sum(1, keepdim=True).clamp(min=1)
        return self.top(self.songs(heard).sum(1) / present)


@torch.no_grad()
def hit_rate(model, data):
    model.eval()
    heard, following = data.tensors
    rate = (model(heard).argmax(1) == following).float().mean().item()
    model.train()
    return rate


def main():
    torch.manual_seed(0)
    train, valid = make_habits(6000, seed=1), make_habits(1000, seed=2)
    model = HabitNet()
    optimizers = [
        torch.optim.SparseAdam(list(model.songs.parameters()), lr=5e-3),
        torch.optim.Adam(model.top.parameters(), lr=3e-3),
    ]
    for epoch in range(6):
        total, count = 0.0, 0
        for heard, following in DataLoader(train, batch_size=60, shuffle=True):
            loss = nn.functional.cross_entropy(model(heard), following)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            total += loss.item()
            count += 1
        print(f"epoch {epoch}  loss {total / count:.3f}  hit rate {hit_rate(model, valid):.3f}", flush=True)


if __name__ == "__main__":
    main()
