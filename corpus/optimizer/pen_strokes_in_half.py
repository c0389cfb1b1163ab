"""Fine-tune a digit reader, first trained on dark-on-light scans, for inverted scans in bfloat16 on the CPU.

Report: https://github.com/workofart/ml-by-hand/pull/85
"""
import copy

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "update-rounds-away",
    "line": ("cause", "HERE"),
    "plain": "the fine-tuning loss falls a little at first and then stands still far above what float32 reaches",
    "set": "twentyfifth",
    "written": "2026-11-28",
}


def scans():
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], digits.target[order]
    x, y = torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels)
    return (x[:1300], y[:1300]), (x[1300:], y[1300:])


def inverted(x):
    return 1.0 - 0.7 * torch.roll(x.flip(-1), shifts=1, dims=-2)


class Reader(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.look = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.LayerNorm(width), nn.GELU())
        self.think = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        self.say = nn.Linear(width, 10)

    def forward(self, x):
        h = self.look(x)
        return self.say(h + self.think(h))


@torch.no_grad()
def accuracy(model, x, y, dtype):
    return (model(x.to(dtype)).argmax(1) == y).float().mean().item()


def first_training(model, x, y):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(1))
    for _ in range(12):
        for xb, yb in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            optimizer.step()


def fine_tune(model, x, y, x_val, y_val, epochs=30, lr=2e-5):
    model = copy.deepcopy(model).to(torch.bfloat16)  # HERE
    dtype = next(model.parameters()).dtype
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(2))
    for epoch in range(epochs):
        total = 0.0
        for xb, yb in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(xb.to(dtype))
            loss = nn.functional.cross_entropy(logits.float(), yb)
            loss.backward()
            optimizer.step()
            total += loss.item()
        if epoch % 5 == 4:
            print(f"fine-tuning epoch {epoch + 1} loss {total / len(loader):.3f} "
                  f"accuracy {accuracy(model, x_val, y_val, dtype):.3f}")


def main():
    torch.manual_seed(0)
    (x, y), (x_val, y_val) = scans()
    model = Reader()
    first_training(model, x, y)
    print(f"plain scans {accuracy(model, x_val, y_val, torch.float32):.3f}")
    print(f"inverted scans before {accuracy(model, inverted(x_val), y_val, torch.float32):.3f}")
    fine_tune(model, inverted(x), y, inverted(x_val), y_val)


if __name__ == "__main__":
    main()
