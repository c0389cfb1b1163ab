"""Depth of the sea floor from sonar pings in half precision on the CPU, with a gradient scaler.

What looks suspicious: in the first steps the scaled gradients are infinite and not one weight moves; now and then later a step is
lost, too. It is right: the scale starts far too high, the scaler skips those steps and halves it until it fits, then tries a larger
one every so often. Clipping comes after unscale_, and the schedule goes on only when a step was done. No report.
"""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": None,
    "set": "twentythird",
    "written": "2026-11-28",
}

SAMPLES = 96


def pings(n, seed):
    rng = np.random.default_rng(seed)
    depth = rng.uniform(15, 80, size=n)
    t = np.arange(SAMPLES)[None]
    hard = rng.uniform(0.5, 1.5, size=(n, 1))
    echo = hard * np.exp(-0.5 * ((t - depth[:, None]) / 2.0) ** 2)
    tail = 0.4 * hard * np.where(t > depth[:, None], np.exp(-(t - depth[:, None]) / 9.0), 0)
    fish = 0.8 * np.exp(-0.5 * ((t - rng.uniform(5, 15, size=(n, 1))) / 1.5) ** 2) * (rng.random((n, 1)) < 0.5)
    x = echo + tail + fish + 0.15 * rng.normal(size=(n, SAMPLES))
    y = (depth - 47.5) / 18.8
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y[:, None], dtype=torch.float32)


class Sounder(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(SAMPLES, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
                                 nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


class HalfLoop:
    def __init__(self, model, steps):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=3e-3, total_steps=steps)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 26, growth_interval=120)
        self.skipped = 0

    def step(self, x, y):
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.model(x)
        loss = F.smooth_l1_loss(out.float(), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.scaler.get_scale() < before:
            self.skipped += 1
        else:
            self.schedule.step()
        return loss.item()


@torch.no_grad()
def error_in_samples(model, x, y):
    model.eval()
    miss = (model(x) - y).abs().mean().item() * 18.8
    model.train()
    return miss


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(*pings(4000, seed=1)), batch_size=100, shuffle=True)
    held = pings(800, seed=2)
    model = Sounder()
    epochs = 15
    loop = HalfLoop(model, steps=epochs * len(loader))
    for epoch in range(epochs):
        losses = []
        for i, (x, y) in enumerate(loader):
            losses.append(loop.step(x, y))
            if epoch == 0 and i % 4 == 0:
                print(f"  step {i:2d}  loss {losses[-1]:.4f}  scale {loop.scaler.get_scale():.0f}")
        print(f"epoch {epoch + 1:2d}  loss {np.mean(losses):.5f}  mean miss {error_in_samples(model, *held):.2f} samples  steps skipped so far {loop.skipped}")


if __name__ == "__main__":
    main()
