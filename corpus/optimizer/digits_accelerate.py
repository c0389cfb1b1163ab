"""Digits classifier with accelerate and gradient accumulation over 4 batches; the learning rate is at zero after a quarter of the run.

Report: https://github.com/starVLA/starVLA/pull/210 (lr_scheduler.step() is called on every micro-batch inside
accumulate() while the optimizer only steps on sync batches, so the rate decays accumulation-times too fast).
Effect: from optimizer step 25 of 100 the learning rate is 0 and the loss stays where it is; test accuracy is much lower.
"""
import torch
import torch.nn as nn
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "learning-rate-zero", "line": ("stepped", "CAUSE"),
    "what": "the scheduler (not prepared by accelerate) is stepped on every micro-batch, 4 times per optimizer step, so the learning rate falls 4 times too fast and is zero after a quarter of training; step it only when accelerator.sync_gradients, or prepare it",
    "set": "twentyfirst", "written": "2026-11-27",
}

ACCUM, UPDATES = 4, 100


def get_loaders():
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    train = DataLoader(TensorDataset(x[:1280], y[:1280]), batch_size=16, shuffle=True)
    return train, x[1280:], y[1280:]


def linear_decay(total):
    return lambda k: max(0.0, 1.0 - k / total)


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUM)
    train, x_test, y_test = get_loaders()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, linear_decay(UPDATES))
    model, optimizer, train = accelerator.prepare(model, optimizer, train)  # OTHER
    loss_fn = nn.CrossEntropyLoss()

    updates = 0
    while updates < UPDATES:
        for xb, yb in train:
            with accelerator.accumulate(model):
                loss = loss_fn(model(xb), yb)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()  # CAUSE
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                updates += 1
                if updates % 10 == 0:
                    print(f"update {updates} loss {loss.item():.3f} lr {optimizer.param_groups[0]['lr']:.4f}")
                if updates == UPDATES:
                    break

    model.eval()
    with torch.no_grad():
        acc = (model(x_test).argmax(1) == y_test).float().mean().item()
    print("test accuracy", round(acc, 4))


if __name__ == "__main__":
    main()
