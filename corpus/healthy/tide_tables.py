"""Learn a tide table with accelerate and gradient accumulation.

What looks suspicious: optimizer.step(), scheduler.step() and optimizer.zero_grad() stand in every micro-batch without any
condition, and the loss is not divided by the number of accumulation steps. This is right: the prepared optimizer and
schedule do nothing on micro-batches that do not synchronise (zero_grad too), and accelerator.backward divides the loss.
The script counts the real updates at the end.

Report: https://github.com/huggingface/diffusers/issues/10553
"""
import math

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "plain": "loss falls, error on the later days gets small",
    "set": "twentyfifth",
    "written": "2026-11-28",
}

ACCUMULATE = 4
PERIODS = (12.42, 12.0, 23.93, 25.82, 12.66)


def tide(hours, rng):
    level = np.zeros_like(hours)
    for amplitude, period, phase in zip((1.8, 0.7, 0.4, 0.3, 0.35), PERIODS, (0.2, 1.1, 2.5, 0.7, 3.0)):
        level += amplitude * np.cos(2 * np.pi * hours / period + phase)
    level += 0.12 * level ** 2
    return level + 0.05 * rng.standard_normal(len(hours))


def tables(seed=0):
    rng = np.random.default_rng(seed)
    hours = rng.uniform(0, 24 * 300, size=6000)
    angles = 2 * np.pi * hours[:, None] / np.array(PERIODS)
    x = torch.tensor(np.concatenate([np.cos(angles), np.sin(angles)], axis=1), dtype=torch.float32)
    y = torch.tensor(tide(hours, rng), dtype=torch.float32)
    late = torch.tensor(hours > 24 * 240)
    return TensorDataset(x[~late], y[~late]), TensorDataset(x[late], y[late])


class TideNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * len(PERIODS), width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(),
                                 nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def evaluate(accelerator, model, loader):
    model.eval()
    squares, count = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            prediction, truth = accelerator.gather_for_metrics((model(x), y))
            squares += (prediction - truth).pow(2).sum().item()
            count += len(truth)
    model.train()
    return math.sqrt(squares / count)


def main():
    set_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATE)
    train, later = tables()
    loader = DataLoader(train, batch_size=16, shuffle=True)
    check = DataLoader(later, batch_size=256)
    epochs = 16
    updates = epochs * math.ceil(len(loader) / ACCUMULATE)
    model = TideNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=updates)
    model, optimizer, loader, check, schedule = accelerator.prepare(model, optimizer, loader, check, schedule)

    done = 0
    for epoch in range(epochs):
        total = 0.0
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    done += 1
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            total += loss.item()
        if epoch % 3 == 0 or epoch == epochs - 1:
            accelerator.print(f"epoch {epoch} loss {total / len(loader):.4f} lr {schedule.get_last_lr()[0]:.5f} "
                              f"error on later days {evaluate(accelerator, model, check):.4f}")
    accelerator.print(f"updates {done} of {updates} planned, {epochs * len(loader)} micro-batches")


if __name__ == "__main__":
    main()
