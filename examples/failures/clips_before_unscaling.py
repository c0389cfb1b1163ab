"""A mixed precision loop clips gradients that still have the factor of the GradScaler."""

import torch
from torch import nn

EXPECT = {"kind": "clipping-without-effect", "line": ("cause", "CLIPS")}


def train_step(model, optimizer, scaler, x, y):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # CLIPS
    scaler.step(optimizer)
    scaler.update()
    return loss


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(20):
        x = torch.randn(32, 12)
        train_step(model, optimizer, scaler, x, x[:, :4].argmax(1))


if __name__ == "__main__":
    main()
