"""Trains a regression of meter readings with accelerate and four accumulation steps, the last group of each epoch being shorter. Nothing goes wrong."""
import torch
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"framework": "accelerate", "kind": None, "set": "eighteenth", "written": "2026-11-27"}


def readings(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 5, generator=g) * 2 - 1
    y = (3 * x[:, 0]).sin() + x[:, 1] * x[:, 2] - 0.5 * x[:, 3].abs() + 0.05 * torch.randn(n, generator=g)
    return TensorDataset(x, y[:, None])


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = nn.Sequential(nn.Linear(5, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3, weight_decay=1e-3)
    loader = DataLoader(readings(1050, 1), batch_size=16, shuffle=True)
    test = readings(500, 2).tensors
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loss_fn = nn.MSELoss()
    updates = 0
    for epoch in range(8):
        model.train()
        total = 0.0
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = loss_fn(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    updates += 1
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            error = loss_fn(model(test[0]), test[1]).item()
        accelerator.print(f"epoch {epoch} updates {updates} train {total / len(loader):.4f} test {error:.4f}")


if __name__ == "__main__":
    main()
