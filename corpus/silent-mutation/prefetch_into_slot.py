"""Batches are loaded while the backward pass runs; after the first pass over the files they go through one fixed slot.

Source: https://github.com/hpcaitech/Elixir/pull/12 (a memory block that backward still needs is reused);
        numpy memory shared by torch.from_numpy: https://github.com/pytorch/pytorch/issues/51849
Plain PyTorch 2.13: silent; the loss stops falling and wanders.
"""
import numpy as np
import torch
from torch import nn

EXPECT = {
    "class": "b", "kind": "silent-mutation", "mutating_marker": "MUTATES", "saving_marker": "SAVES", "step": 300,
    "module": "stem", "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}


class Files:
    """Twelve thousand small spectra on disk (here: in memory)."""

    def __init__(self, count=9600, width=48, seed=0):
        rng = np.random.default_rng(seed)
        self.label = rng.integers(0, 6, count)
        peaks = rng.normal(size=(6, width)).astype(np.float32)
        self.data = peaks[self.label] * 0.6 + rng.normal(size=(count, width)).astype(np.float32)

    def read(self, rows):
        return self.data[rows], self.label[rows]


class Loader:
    def __init__(self, files, size=32):
        self.files, self.size = files, size
        self.passes = len(files.label) // size
        self.slot = np.empty((size, files.data.shape[1]), np.float32)
        self.order = np.random.default_rng(1).permutation(len(files.label))

    def fetch(self, index):
        at = index % self.passes * self.size
        values, labels = self.files.read(self.order[at : at + self.size])
        if index < self.passes:
            batch = torch.from_numpy(values)
        else:
            np.copyto(self.slot, values)  # MUTATES
            batch = torch.from_numpy(self.slot)
        return batch, torch.tensor(labels)


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Linear(width, 64)
        self.body = nn.Sequential(nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 6)

    def forward(self, x):
        return self.head(self.body(self.stem(x)))  # SAVES


def main():
    torch.manual_seed(0)
    loader, net = Loader(Files()), Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    following = loader.fetch(0)
    for step in range(800):
        x, y = following
        loss = nn.functional.cross_entropy(net(x), y)
        following = loader.fetch(step + 1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
