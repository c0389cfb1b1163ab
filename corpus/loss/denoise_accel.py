"""Denoising network on 8x8 digits with accelerate and gradient accumulation; every update is eight times too small.

Report: https://github.com/huggingface/accelerate/issues/3533 (double divide gradient_accumulation_steps),
https://github.com/huggingface/transformers/issues/26312 (accelerator.backward divides the loss already)

The loss is divided by the number of accumulation steps by hand and accelerator.backward divides it again. With SGD
the validation error is still 0.171 after 36 updates and 0.144 after 72; with one division it is 0.077 and 0.073.
"""
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "loss-divided-twice", "line": ("cause", "CAUSE"),
    "what": "accelerator.backward already divides by gradient_accumulation_steps, so dividing the loss by hand as well makes every gradient 8 times too small; drop the manual division.",
    "set": "twentieth", "written": "2026-11-27",
}

ACCUM = 8


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(),
            nn.Linear(128, 48), nn.ReLU(),
            nn.Linear(48, 128), nn.ReLU(),
            nn.Linear(128, 64),
        )

    def forward(self, x):
        return torch.sigmoid(self.body(x))


def validate(model, loader):
    model.eval()
    total = count = 0
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for (x,) in loader:
            noisy = x + 0.3 * torch.randn(x.shape, generator=g)
            total += (model(noisy) - x).pow(2).sum().item()
            count += x.numel()
    model.train()
    return total / count


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUM)
    data = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    train_loader = DataLoader(TensorDataset(data[:1536]), batch_size=16, shuffle=True)
    val_loader = DataLoader(TensorDataset(data[1536:]), batch_size=64)
    model = Denoiser()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model, optimizer, train_loader, val_loader = accelerator.prepare(model, optimizer, train_loader, val_loader)

    criterion = nn.MSELoss()
    updates = 0
    for epoch in range(6):
        for (x,) in train_loader:
            with accelerator.accumulate(model):
                noisy = x + 0.3 * torch.randn_like(x)
                loss = criterion(model(noisy), x)
                loss = loss / ACCUM  # CAUSE
                accelerator.backward(loss)  # OTHER
                if accelerator.sync_gradients:
                    updates += 1
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch} updates {updates} loss {loss.item() * ACCUM:.4f} "
                          f"val {validate(model, val_loader):.4f}")


if __name__ == "__main__":
    main()
