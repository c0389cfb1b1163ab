"""Trains a small segmentation net with accelerate and 8 accumulation steps; the gradients are eight times too large.

Report: https://github.com/lucidrains/med-seg-diff-pytorch/pull/6 (loss.backward() was called instead of accelerator.backward(loss))

Effect: the loss is not divided by the accumulation steps, the updates are 8 times as large as meant, the loss explodes in the first steps and stays bad; with accelerator.backward it falls smoothly.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

EXPECT = {
    "framework": "accelerate", "kind": "gradient-not-used", "line": ("cause", "CAUSE"),
    "what": "loss.backward() skips the division by gradient_accumulation_steps that accelerator.backward(loss) does, so the summed gradients are 8 times too large.",
    "set": "eighteenth", "written": "2026-11-27",
}


def scans(n, seed=0, size=12):
    g = torch.Generator().manual_seed(seed)
    grid = torch.arange(size).float()
    cx, cy = (torch.rand(2, n, 1, 1, generator=g) * 8 + 2)
    r = torch.rand(n, 1, 1, generator=g) * 2 + 1.5
    mask = (((grid[None, :, None] - cx) ** 2 + (grid[None, None, :] - cy) ** 2) < r ** 2).float()
    image = mask + 0.4 * torch.randn(mask.shape, generator=g)
    return TensorDataset(image[:, None], mask[:, None])


def build_model():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(16, 1, 3, padding=1))


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=8)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    loader = DataLoader(scans(640), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    updates = 0
    for epoch in range(5):
        total = 0.0
        for image, mask in loader:
            with accelerator.accumulate(model):
                loss = F.binary_cross_entropy_with_logits(model(image), mask)
                loss.backward()  # CAUSE
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
            updates += accelerator.sync_gradients
        accelerator.print(f"epoch {epoch} updates {updates} mean loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
