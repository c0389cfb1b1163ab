"""The linear schedule is built with the number of epochs times the accumulation-divided loader length while it is
stepped per batch, so the learning rate reaches 0 at step 75 of 600 and stays there.

Report: huggingface/diffusers issues #4387 and #1957 (num_training_steps and gradient accumulation counted in
different units)
"""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_linear_schedule_with_warmup

EXPECT = {
    "kind": "learning-rate-zero",
    "line": ("cause", "HERE"),
    "plain": "test loss 0.884, accuracy 0.782, losses frozen to the last digit from step 75 on; 0.0044 and 1.000 with epochs * len(loader)",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


def lace(n, gen, size=12):
    family = torch.randint(0, 3, (n,), generator=gen)
    period = 2 + family
    row = torch.arange(size)
    shift = torch.randint(0, size, (n, 1, 1), generator=gen)
    grid = (row[None, :, None] + 2 * row[None, None, :] + shift) % period[:, None, None] == 0
    noise = torch.rand(n, size, size, generator=gen) < 0.2
    return (grid ^ noise).float()[:, None], family


class LaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 5, padding=2)
        self.mid = nn.Conv2d(16, 24, 3, stride=2, padding=1)
        self.head = nn.Linear(24 * 36, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(self.mid(x))
        return self.head(x.flatten(1))


class LaceTrainer:
    def __init__(self, model, loader, epochs=10, accum=8, lr=0.02, warmup=5):
        self.model, self.loader, self.epochs, self.accum = model, loader, epochs, accum
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.8)
        total = epochs * math.ceil(len(loader) / accum)
        self.sched = get_linear_schedule_with_warmup(self.opt, warmup, total)  # HERE

    def fit(self):
        for epoch in range(self.epochs):
            total, hits, n = 0.0, 0, 0
            for k, (x, y) in enumerate(self.loader):
                out = self.model(x)
                loss = F.cross_entropy(out, y)
                loss.backward()
                self.opt.step()
                self.opt.zero_grad()
                self.sched.step()
                total += loss.item() * len(y)
                hits += (out.argmax(1) == y).sum().item()
                n += len(y)
            print(f"epoch {epoch:2d} loss {total / n:.4f} accuracy {hits / n:.3f}")


def main():
    torch.manual_seed(16)
    gen = torch.Generator().manual_seed(33)
    x, y = lace(60 * 32, gen)
    model = LaceNet()
    LaceTrainer(model, DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)).fit()
    xt, yt = lace(1500, gen)
    with torch.no_grad():
        out = model(xt)
    print(f"final test loss {F.cross_entropy(out, yt).item():.4f} accuracy {(out.argmax(1) == yt).float().mean().item():.4f}")


if __name__ == "__main__":
    main()
