"""A one-cycle schedule is made for the epochs and stepped after each batch: it raises in the second epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {"kind": "optimizer-error", "line": ("cause", "STEPPED")}

EPOCHS = 12


def main():
    torch.manual_seed(0)
    inputs = torch.randn(96, 6)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=12, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=EPOCHS)
    for _ in range(EPOCHS):
        for batch, target in loader:
            optimizer.zero_grad()
            (model(batch) - target).square().mean().backward()
            optimizer.step()
            schedule.step()  # STEPPED


if __name__ == "__main__":
    main()
