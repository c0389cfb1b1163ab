"""River level from rain and upstream gauges: a convolution over time, trained in mixed precision.

Report: https://github.com/victorchall/EveryDream2trainer/pull/175
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "clipping-without-effect",
    "line": ("cause", "CLIP"),
    "plain": "the loss hardly moves in the whole run",
    "set": "twentythird",
    "written": "2026-11-28",
}

SPAN = 36


def make_river(hours=4000, seed=0):
    rng = np.random.default_rng(seed)
    rain = (rng.random(hours) < 0.06) * rng.gamma(2.0, 1.0, size=hours)
    upstream, level = np.zeros(hours), np.zeros(hours)
    for t in range(1, hours):
        upstream[t] = 0.9 * upstream[t - 1] + 0.5 * rain[t - 1]
        level[t] = 0.85 * level[t - 1] + 0.25 * upstream[max(t - 5, 0)] + 0.02 * rng.normal()
    table = np.stack([rain, upstream + 0.05 * rng.normal(size=hours), level], axis=1)
    return (table - table[:3000].mean(0)) / table[:3000].std(0)


def windows(table, start, stop, ahead=6):
    x = np.stack([table[t:t + SPAN].T for t in range(start, stop - SPAN - ahead)])
    y = np.stack([table[t + SPAN + ahead - 1, 2] for t in range(start, stop - SPAN - ahead)])
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32))


class LevelNet(nn.Module):
    def __init__(self, channels=3, width=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, width, 5, padding=2), nn.GELU(),
            nn.Conv1d(width, width, 5, padding=4, dilation=2), nn.GELU(),
            nn.Conv1d(width, width, 5, padding=8, dilation=4), nn.GELU(),
        )
        self.head = nn.Linear(2 * width, 1)

    def forward(self, x):
        h = self.body(x)
        return self.head(torch.cat([h.mean(-1), h[..., -1]], dim=1)).squeeze(-1)


class Fitter:
    def __init__(self, model, lr=0.05, max_norm=1.0):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu")
        self.max_norm = max_norm

    def step(self, x, y):
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            guess = self.model(x)
        loss = F.mse_loss(guess.float(), y)
        self.scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)  # CLIP
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    @torch.no_grad()
    def validate(self, loader):
        self.model.eval()
        squares = sum((self.model(x) - y).pow(2).sum().item() for x, y in loader)
        self.model.train()
        return squares / len(loader.dataset)


def main():
    torch.manual_seed(2)
    table = make_river()
    train = DataLoader(windows(table, 0, 3000), batch_size=64, shuffle=True)
    valid = DataLoader(windows(table, 3000, 4000), batch_size=256)
    fitter = Fitter(LevelNet())
    for epoch in range(8):
        losses = [fitter.step(x, y) for x, y in train]
        print(f"epoch {epoch}  train loss {np.mean(losses):.4f}  validation error {fitter.validate(valid):.4f}  scale {fitter.scaler.get_scale():.0f}")


if __name__ == "__main__":
    main()
