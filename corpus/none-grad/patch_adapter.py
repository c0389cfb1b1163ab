"""Adapters (LoRA written by hand) in a frozen small ViT for digit images, with gradient checkpointing: the adapters stay at zero and only the classifier learns.
Report: https://github.com/huggingface/transformers/issues/21381 (with frozen embeddings the reentrant gradient checkpointing gives no gradients; fix with use_reentrant=False)
The input of every checkpointed block has requires_grad=False (the patch embeddings are frozen), so the blocks are run without
a graph: all gradients of down/up are None, up stays exactly 0, and the accuracy is that of a linear probe (0.27 instead of 0.83).
"""
import math
import warnings

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification

EXPECT = {
    "framework": "transformers", "kind": "none-grad", "line": ("enabled", "CAUSE"),
    "what": "reentrant gradient checkpointing with frozen embeddings cuts the graph in every block, so the adapters get no gradient; use use_reentrant=False or make the block inputs require grad",
    "set": "twentyfirst", "written": "2026-11-27",
}
warnings.filterwarnings("ignore")


class Adapter(nn.Module):
    def __init__(self, base, rank=8, alpha=16.0):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.down.t() @ self.up.t())


def add_adapters(model):
    for p in model.parameters():
        p.requires_grad_(False)
    targets = [(m, name, child) for m in model.vit.modules() for name, child in m.named_children() if isinstance(child, nn.Linear)]
    for parent, name, child in targets:
        setattr(parent, name, Adapter(child))
    for p in model.classifier.parameters():
        p.requires_grad_(True)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        pred = model(pixel_values=x).logits.argmax(-1)
    model.train()
    return (pred == y).float().mean().item()


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0
    y = torch.tensor(digits.target)
    config = ViTConfig(image_size=8, patch_size=2, num_channels=1, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                       intermediate_size=64, num_labels=10, initializer_range=0.1)
    model = ViTForImageClassification(config)
    add_adapters(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # CAUSE
    model.train()
    trainable = [p for p in model.parameters() if p.requires_grad]
    print("trainable parameters:", sum(p.numel() for p in trainable))
    optimizer = torch.optim.AdamW(trainable, lr=3e-3, weight_decay=0.0)
    for step in range(200):
        pick = torch.randint(0, 1400, (32,))
        loss = model(pixel_values=x[pick], labels=y[pick]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 40 == 0:
            print(f"step {step:3d} loss {loss.item():.4f} test accuracy {accuracy(model, x[1400:], y[1400:]):.3f}")
    up = sum(p.abs().sum().item() for n, p in model.named_parameters() if n.endswith("up"))
    print(f"final test accuracy {accuracy(model, x[1400:], y[1400:]):.3f}, adapter size {up:.3f}")


if __name__ == "__main__":
    main()
