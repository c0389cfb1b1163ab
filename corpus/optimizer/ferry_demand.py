"""Optimizer.zero_grad() stands at the start of the accumulate block, so at the synchronising micro-batch it clears what
the three earlier micro-batches had accumulated, and only the last harbour of each group is learned.

Report: huggingface/accelerate issue #1299 (zero_grad must be put to the end of a training iteration);
pytorch/torchtitan pull #3575
"""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelerate import Accelerator
from accelerate.utils import set_seed

EXPECT = {
    "kind": "gradient-not-used",
    "line": ("cleared", "HERE"),
    "plain": "test mse 12.30 with it (22.7, 16.7, 9.7 and 0.02 for the four harbours); 0.0195 with zero_grad moved behind optimizer.step()",
    "set": "eighteen_classes",
    "written": "2026-11-29",
}


HARBOURS = ["Westkai", "Nordmole", "Altstadt", "Leuchtturm"]
HOURS = 24


def make_records(n_groups, per_group, gen):
    xs, ys = [], []
    for _ in range(n_groups):
        for h in range(len(HARBOURS)):
            hour = torch.rand(per_group, generator=gen) * HOURS
            wind = torch.randn(per_group, generator=gen)
            fare = torch.rand(per_group, generator=gen) * 2 - 1
            phase = 2 * torch.pi * hour / HOURS
            onehot = torch.zeros(per_group, len(HARBOURS))
            onehot[:, h] = 1.0
            x = torch.cat([onehot, phase.sin()[:, None], phase.cos()[:, None], wind[:, None], fare[:, None]], 1)
            y = (1 + h) * torch.sin(phase + h) - 0.8 * wind * (h - 1.5) - fare + 2.0 * (h % 2)
            xs.append(x)
            ys.append(y[:, None] + 0.1 * torch.randn(per_group, 1, generator=gen))
    return torch.cat(xs), torch.cat(ys)


class DemandNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.body(x))


def main():
    set_seed(11)
    gen = torch.Generator().manual_seed(5)
    accelerator = Accelerator(gradient_accumulation_steps=4, cpu=True)
    x, y = make_records(40, 32, gen)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=False)
    model = DemandNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    begin = time.time()
    for epoch in range(10):
        total = 0.0
        for xb, yb in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()  # HERE
                loss = nn.functional.mse_loss(model(xb), yb)
                accelerator.backward(loss)
                optimizer.step()
            total += loss.item()
        accelerator.print(f"epoch {epoch:2d}  mse {total / len(loader):.3f}")

    xt, yt = make_records(8, 32, gen)
    with torch.no_grad():
        pred = model(xt)
        for h, name in enumerate(HARBOURS):
            rows = xt[:, h] == 1
            print(f"{name:12s} test mse {nn.functional.mse_loss(pred[rows], yt[rows]).item():.3f}")
        print(f"final test mse {nn.functional.mse_loss(pred, yt).item():.4f}  ({time.time() - begin:.1f}s)")


if __name__ == "__main__":
    main()
