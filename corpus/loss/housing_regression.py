"""Trains a tabular regressor with accelerate and gradient accumulation; the loss is divided by the number of accumulation
steps by hand although accelerator.backward() already does it, so every SGD update is 8 times too small and the model
hardly learns (validation R2 far below that of the mended copy after the same number of steps).

Report: https://github.com/huggingface/accelerate/issues/3533 (double divide gradient_accumulation_steps: once in the
training step and once more in accelerator.backward)
"""
import numpy as np
import torch
from torch import nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "loss-divided-twice", "line": ("cause", "CAUSE"),
    "what": "The loss is divided by gradient_accumulation_steps by hand and again inside accelerator.backward, so the gradients are 8 times too small; drop the manual division.",
    "set": "twentysecond", "written": "2026-11-28",
}

ACCUM = 8


def make_data(n=4608, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 8)).astype("float32")
    price = (1.5 * x[:, 0] + np.sin(2 * x[:, 1]) + 0.7 * x[:, 2] * x[:, 3] - np.abs(x[:, 4])
             + 0.1 * rng.normal(size=n)).astype("float32")
    price = (price - price.mean()) / price.std()
    return torch.from_numpy(x), torch.from_numpy(price).unsqueeze(1)


@torch.no_grad()
def r2(model, x, y):
    model.eval()
    err = ((model(x) - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    model.train()
    return 1 - err.item()


def main():
    torch.manual_seed(0)
    x, y = make_data()
    loader = DataLoader(TensorDataset(x[:4096], y[:4096]), batch_size=16, shuffle=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUM)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loss_fn = nn.MSELoss()
    updates = 0
    for epoch in range(6):
        seen = 0.0
        for xb, yb in loader:
            with accelerator.accumulate(model):
                loss = loss_fn(model(xb), yb)
                seen += loss.item()
                loss = loss / ACCUM  # CAUSE
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            updates += int(accelerator.sync_gradients)
        accelerator.print(f"epoch {epoch} updates {updates} mse {seen / len(loader):.4f} val R2 {r2(model, x[4096:], y[4096:]):.4f}")


if __name__ == "__main__":
    main()
