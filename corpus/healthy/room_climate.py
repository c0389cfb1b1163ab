"""Occupancy of rooms from climate sensors, gradients gathered over four small batches with accelerate.

What looks suspicious: step() and zero_grad() are called for every small batch, and the loss is not divided although four
batches are gathered; the schedule too is stepped each time. It is right: inside accelerator.accumulate the prepared
optimizer and schedule skip those calls until the gradients are complete, and accelerator.backward divides the loss.
Question of that kind: https://github.com/huggingface/accelerate/issues/1773
"""
import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "kind": "none",
    "framework": "accelerate",
    "plain": "The loss falls smoothly and the accuracy is high.",
    "set": "twentysixth",
    "written": "2026-11-29",
}

GATHER = 4
EPOCHS = 6
SENSORS = ("temperature", "humidity", "carbon dioxide", "light", "noise")


def make_rooms(count, seed):
    rng = np.random.default_rng(seed)
    people = rng.integers(0, 4, count)
    values = np.stack([
        20 + 0.6 * people + rng.normal(0, 0.8, count),
        40 + 1.5 * people + rng.normal(0, 4, count),
        420 + 180 * people + rng.normal(0, 90, count),
        np.where(people > 0, 300, 40) + rng.normal(0, 60, count),
        30 + 9 * np.sqrt(people) + rng.normal(0, 3, count),
    ], axis=1)
    values = (values - values.mean(0)) / values.std(0)
    return TensorDataset(torch.tensor(values, dtype=torch.float32), torch.from_numpy(people))


class RoomNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(len(SENSORS), width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(width, width), nn.GELU(), nn.Linear(width, 4),
        )

    def forward(self, values):
        return self.layers(values)


@torch.no_grad()
def accuracy(accelerator, model, loader):
    model.eval()
    right, seen = 0, 0
    for values, people in loader:
        guess, people = accelerator.gather_for_metrics((model(values).argmax(1), people))
        right += (guess == people).sum().item()
        seen += len(people)
    model.train()
    return right / seen


def main():
    torch.manual_seed(4)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=GATHER)
    model = RoomNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    train = DataLoader(make_rooms(2560, seed=1), batch_size=16, shuffle=True)
    valid = DataLoader(make_rooms(600, seed=2), batch_size=200)
    updates = EPOCHS * len(train) // GATHER
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=updates + 1)
    model, optimizer, train, valid, schedule = accelerator.prepare(model, optimizer, train, valid, schedule)
    model.train()
    for epoch in range(EPOCHS):
        total = 0.0
        for values, people in train:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(values), people)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch}  loss {total / len(train):.3f}  accuracy {accuracy(accelerator, model, valid):.3f}  "
              f"rate {schedule.get_last_lr()[0]:.4f}", flush=True)


if __name__ == "__main__":
    main()
