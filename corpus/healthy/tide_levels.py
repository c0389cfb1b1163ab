"""Half-precision forecast of tide levels with a gradient scaler. Nothing is wrong.

Looks suspicious: in the first steps the gradients hold infinities and the weights do not move at all, the learning rate
scheduler is not called in those steps and the scale falls by half again and again. This is what the scaler is for: it begins
with a very large scale, skips steps that overflow and halves the scale until it fits; unscale_ comes before the clipping.
Report of the suspicion: https://github.com/pytorch/pytorch/issues/44511
"""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none",
    "plain": "the first steps are skipped, then the loss falls steadily",
    "set": "twentysixth",
    "written": "2026-11-29",
}

PAST, AHEAD, BATCH, EPOCHS = 48, 6, 64, 8


def make_levels(hours, generator):
    time = torch.arange(hours).float()
    level = torch.zeros(hours)
    for period, height in ((12.42, 1.0), (12.0, 0.45), (25.82, 0.2), (23.93, 0.25)):
        phase = 2 * math.pi * torch.rand((), generator=generator)
        level = level + height * torch.sin(2 * math.pi * time / period + phase)
    surge = torch.zeros(hours)
    kicks = 0.03 * torch.randn(hours, generator=generator)
    for hour in range(1, hours):
        surge[hour] = 0.98 * surge[hour - 1] + kicks[hour]
    return level + surge


def make_windows(level):
    frames = level.unfold(0, PAST + AHEAD, 1)
    return frames[:, :PAST].contiguous(), frames[:, PAST:].contiguous()


class TideNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.first = nn.Linear(PAST, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, AHEAD)

    def forward(self, past):
        hidden = torch.relu(self.first(past))
        hidden = hidden + torch.relu(self.second(hidden))
        return self.head(hidden)


def main():
    torch.manual_seed(2)
    level = make_levels(4000, torch.Generator().manual_seed(5))
    past, ahead = make_windows(level)
    train = TensorDataset(past[:3200], ahead[:3200])
    check_past, check_ahead = past[3300:], ahead[3300:]
    loader = DataLoader(train, batch_size=BATCH, shuffle=True)
    model = TideNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    skipped = 0
    for epoch in range(EPOCHS):
        total = 0.0
        for history, future in loader:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.float16):
                guess = model(history)
            loss = F.mse_loss(guess.float(), future)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() < before:
                skipped += 1
            else:
                schedule.step()
            total += loss.item()
        with torch.no_grad():
            error = F.mse_loss(model(check_past), check_ahead).item()
        print(f"epoch {epoch}  loss {total / len(loader):.5f}  validation {error:.5f}  scale {scaler.get_scale():.0f}  skipped {skipped}")


if __name__ == "__main__":
    main()
