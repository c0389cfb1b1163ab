"""Film ratings by factors: first the old catalogue is learned, then new films are added while the old films' vectors stay.

Report: https://code-examples.net/en/q/4c0bc7c/bypassing-stateful-optimizers-selective-parameter-training-in-pytorch-via-gradient-masking
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "frozen-parameter-moves",
    "line": ("optimizer", "HERE"),
    "late": True,
    "plain": "In the second stage the error on the old films grows from epoch to epoch, although their vectors are said to be kept.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

VIEWERS, OLD, NEW, RANK = 300, 120, 40, 8


def make_ratings(seed=7):
    rng = np.random.default_rng(seed)
    viewers = rng.normal(0, 1, (VIEWERS, RANK))
    films = rng.normal(0, 1, (OLD + NEW, RANK)) / np.sqrt(RANK)

    def draw(low, high, count):
        who, what = rng.integers(0, VIEWERS, count), rng.integers(low, high, count)
        stars = (viewers[who] * films[what]).sum(1) + rng.normal(0, 0.1, count)
        return TensorDataset(torch.tensor(who), torch.tensor(what), torch.tensor(stars, dtype=torch.float32))

    return draw(0, OLD, 16000), draw(0, OLD, 3000), draw(OLD, OLD + NEW, 8000), draw(OLD, OLD + NEW, 2000)


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.viewers = nn.Embedding(VIEWERS, RANK)
        self.films = nn.Embedding(OLD + NEW, RANK)
        nn.init.normal_(self.viewers.weight, std=0.3)
        nn.init.normal_(self.films.weight, std=0.3)

    def forward(self, who, what):
        return (self.viewers(who) * self.films(what)).sum(1)


def keep_old_rows(model):
    kept = torch.ones(OLD + NEW, 1)
    kept[:OLD] = 0.0
    model.viewers.weight.requires_grad_(False)
    return model.films.weight.register_hook(lambda gradient: gradient * kept)


@torch.no_grad()
def error(model, data):
    who, what, stars = data.tensors
    return (model(who, what) - stars).pow(2).mean().sqrt().item()


def run_epoch(model, optimizer, data):
    total, count = 0.0, 0
    for who, what, stars in DataLoader(data, batch_size=200, shuffle=True):
        loss = nn.functional.mse_loss(model(who, what), stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        count += 1
    return total / count


def main():
    torch.manual_seed(0)
    old, old_test, new, new_test = make_ratings()
    model = Factors()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-3)
    for epoch in range(12):
        loss = run_epoch(model, optimizer, old)
        if epoch % 3 == 2:
            print(f"old catalogue, epoch {epoch}: loss {loss:.4f}  error on old films {error(model, old_test):.3f}")
    keep_old_rows(model)
    optimizer = torch.optim.AdamW([model.films.weight], lr=1e-2, weight_decay=0.1)  # HERE
    for epoch in range(12):
        loss = run_epoch(model, optimizer, new)
        print(f"new films, epoch {epoch}: loss {loss:.4f}  error on old films {error(model, old_test):.3f}  "
              f"on new films {error(model, new_test):.3f}", flush=True)


if __name__ == "__main__":
    main()
