"""LoRA by hand on a small ViT from a config: first trained on upright digits, then
adapters only for rotated ones, merged at the end.
"""
import math

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from transformers import ViTConfig, ViTForImageClassification, get_linear_schedule_with_warmup

EXPECT = {"framework": "transformers", "kind": None, "set": "twentieth", "written": "2026-11-27"}


class LoRALinear(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.a.T @ self.b.T)

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scale * self.b @ self.a
        return self.base


def replace_linears(module, make):
    for name, child in list(module.named_children()):
        new = make(child)
        if new is child:
            replace_linears(child, make)
        else:
            setattr(module, name, new)


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        out = (model(pixel_values=x).logits.argmax(1) == y).float().mean().item()
    model.train()
    return out


def train(model, x, y, steps, lr, batch=64):
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=lr, weight_decay=0.01)
    scheduler = get_linear_schedule_with_warmup(optimizer, 10, steps)
    model.train()
    for step in range(steps):
        idx = torch.randint(0, len(x), (batch,))
        loss = model(pixel_values=x[idx], labels=y[idx]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        scheduler.step()
        if step % 30 == 29:
            print(f"  step {step + 1} loss {loss.item():.3f}")


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    y = torch.tensor(digits.target)
    rotated = torch.rot90(x, 1, dims=(2, 3))
    cfg = ViTConfig(image_size=8, patch_size=4, num_channels=1, hidden_size=64, num_hidden_layers=2,
                    num_attention_heads=4, intermediate_size=128, num_labels=10,
                    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = ViTForImageClassification(cfg)
    train(model, x[:1400], y[:1400], steps=120, lr=3e-3)
    print(f"upright {accuracy(model, x[1400:], y[1400:]):.3f} rotated {accuracy(model, rotated[1400:], y[1400:]):.3f}")

    model.requires_grad_(False)
    replace_linears(model.vit, lambda m: LoRALinear(m) if isinstance(m, nn.Linear) else m)
    print("trainable", sum(p.numel() for p in model.parameters() if p.requires_grad))
    train(model, rotated[:1400], y[:1400], steps=120, lr=1e-2)
    print(f"rotated with adapters {accuracy(model, rotated[1400:], y[1400:]):.3f}")

    replace_linears(model.vit, lambda m: m.merged() if isinstance(m, LoRALinear) else m)
    print(f"rotated after merging {accuracy(model, rotated[1400:], y[1400:]):.3f}")


if __name__ == "__main__":
    main()
