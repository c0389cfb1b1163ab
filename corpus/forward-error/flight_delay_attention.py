"""Delay of a flight from the last messages about it; the weights of attention are kept for the pictures in the report.

The best network so far is put aside whenever the smoothed loss reaches a new low.
Report: https://github.com/sktime/sktime/issues/10928 (also https://github.com/pytorch/pytorch/issues/54580)
"""
import copy

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "forward-error",
    "line": ("cause", "HERE"),
    "late": True,
    "plain": "RuntimeError at the first snapshot (step 80): 'Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol'.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

MESSAGES, VALUES = 10, 6
SNAPSHOT_EVERY = 80


def make_flights(count, seed):
    rng = np.random.default_rng(seed)
    messages = rng.normal(size=(count, MESSAGES, VALUES)).astype(np.float32)
    weight = np.exp(2 * messages[:, :, 0])
    weight = weight / weight.sum(1, keepdims=True)
    delay = (weight * messages[:, :, 1]).sum(1) * 20 + rng.normal(0, 1, count)
    return TensorDataset(torch.from_numpy(messages), torch.tensor(delay / 10, dtype=torch.float32))


class AttentionPool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.attention = None

    def forward(self, hidden):
        self.attention = self.score(hidden).squeeze(-1).softmax(-1)  # HERE
        return (self.attention.unsqueeze(-1) * hidden).sum(1)


class DelayModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.read = nn.Sequential(nn.Linear(VALUES, width), nn.GELU(), nn.Linear(width, width))
        self.pool = AttentionPool(width)
        self.out = nn.Linear(width, 1)

    def forward(self, messages):
        return self.out(self.pool(self.read(messages))).squeeze(-1)


class BestKeeper:
    def __init__(self):
        self.lowest = float("inf")
        self.model = None

    def look(self, smoothed, model):
        if smoothed < self.lowest:
            self.lowest = smoothed
            self.model = copy.deepcopy(model)  # HERE


@torch.no_grad()
def error(model, data):
    messages, delay = data.tensors
    return (model(messages) - delay).abs().mean().item() * 10


def main():
    torch.manual_seed(3)
    train, valid = make_flights(3000, seed=1), make_flights(600, seed=2)
    model, keeper = DelayModel(), BestKeeper()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    smoothed, step = None, 0
    for epoch in range(6):
        for messages, delay in DataLoader(train, batch_size=50, shuffle=True):
            loss = nn.functional.smooth_l1_loss(model(messages), delay)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            smoothed = loss.item() if smoothed is None else 0.95 * smoothed + 0.05 * loss.item()
            step += 1
            if step % SNAPSHOT_EVERY == 0:
                keeper.look(smoothed, model)
                print(f"step {step}  smoothed loss {smoothed:.4f}  best {keeper.lowest:.4f}", flush=True)
        print(f"epoch {epoch}  error {error(model, valid):.2f} minutes", flush=True)
    print(f"best network: error {error(keeper.model, valid):.2f} minutes")


if __name__ == "__main__":
    main()
