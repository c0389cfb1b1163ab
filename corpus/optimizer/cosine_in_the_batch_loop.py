"""Regression of diabetes progression. The cosine is made for the number of epochs, and stepped after each batch: the
rate rises and falls many times, and is high at the end."""
import argparse

import torch
from sklearn.datasets import load_diabetes
from torch import nn

EXPECT = {
    "class": "scheduler stepped per batch",
    "kind": "schedule-turns-back",
    "line": ["cause", "cause"],
    "set": "ledger",
    "written": "2026-11-27",
}


def fit(args, model, x, y):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate)
    annealing = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs, eta_min=1e-5)  # <-- cause
    for epoch in range(args.epochs):
        for rows in torch.randperm(len(x)).split(40):
            loss = (model(x[rows]).squeeze(1) - y[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            annealing.step()
        print(f"epoch {epoch}  loss {loss.item():.4f}  rate {annealing.get_last_lr()[0]:.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--rate", type=float, default=0.02)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    features, targets = load_diabetes(return_X_y=True)
    x = torch.tensor(features, dtype=torch.float32) * 20
    y = torch.tensor(targets, dtype=torch.float32)
    y = (y - y.mean()) / y.std()
    fit(parser.parse_args([]), nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)), x, y)
