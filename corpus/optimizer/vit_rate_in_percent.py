"""A small ViT on digits: the rate is meant for a schedule that multiplies it, and the schedule divides."""
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from transformers import ViTConfig, ViTForImageClassification

EXPECT = {
    "class": "update-too-small", "framework": "transformers", "kind": "update-too-small", "line": ("optimizer", "MADE"),
    "set": "ledger", "written": "2026-11-27",
}


def main():
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    config = ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=8, patch_size=2, num_channels=1, num_labels=10)
    model = ViTForImageClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)  # MADE
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1e-3 / 10_000)
    for step in range(80):
        batch = torch.randint(0, len(images), (32,))
        loss = F.cross_entropy(model(pixel_values=images[batch]).logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
