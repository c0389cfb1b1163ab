"""Pretrains a tiny ViT on the digits 0-4 and then tunes LoRA weights and a new head on 5-9 with gradient checkpointing; the
reentrant checkpoint gets inputs that need no gradient, so the LoRA weights receive none and only the head learns (LoRA B
stays exactly 0; with use_reentrant=False it moves and the accuracy is clearly higher).

Report: https://github.com/huggingface/transformers/issues/26221 (with LoRA and use_reentrant=True the checkpointed part
has no gradients, since at least one input must require grad)
"""
import warnings
import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification

EXPECT = {
    "framework": "transformers", "kind": "none-grad", "line": ("enabled", "CAUSE"),
    "what": "Reentrant gradient checkpointing over frozen embeddings gives the LoRA weights no gradient; use use_reentrant=False (or make the embedding output require grad).",
    "set": "twentysecond", "written": "2026-11-28",
}

warnings.filterwarnings("ignore")


class LoRALinear(nn.Module):
    def __init__(self, base, r=8, alpha=16):
        super().__init__()
        self.base = base
        self.A = nn.Parameter(torch.randn(r, base.in_features) / base.in_features ** 0.5)
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + (x @ self.A.T @ self.B.T) * self.scale


def inject(module):
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, LoRALinear(child))
        else:
            inject(child)


def fit(model, params, x, y, steps, lr, tag):
    optimizer = torch.optim.AdamW(params, lr=lr)
    model.train()
    for step in range(steps):
        idx = torch.randint(len(x), (32,))
        loss = model(pixel_values=x[idx], labels=y[idx]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"{tag} step {step} loss {loss.item():.3f}")


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(pixel_values=x).logits.argmax(-1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    d = load_digits()
    x = torch.tensor(d.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    y = torch.tensor(d.target)
    old, new = y < 5, y >= 5
    config = ViTConfig(image_size=8, patch_size=2, num_channels=1, hidden_size=32, num_hidden_layers=2, num_labels=5,
                       num_attention_heads=4, intermediate_size=64, hidden_dropout_prob=0.0)
    model = ViTForImageClassification(config)
    fit(model, model.parameters(), x[old], y[old], 150, 2e-3, "pretrain")

    for p in model.parameters():
        p.requires_grad_(False)
    inject(model.vit.layers if hasattr(model.vit, "layers") else model.vit.encoder)
    model.classifier = nn.Linear(32, 5)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # CAUSE
    trainable = [p for p in model.parameters() if p.requires_grad]
    xn, yn = x[new], y[new] - 5
    fit(model, trainable, xn[:600], yn[:600], 200, 3e-3, "tune")
    moved = max(m.B.abs().max().item() for m in model.modules() if isinstance(m, LoRALinear))
    print(f"accuracy on new digits {accuracy(model, xn[600:], yn[600:]):.3f}, largest LoRA B entry {moved:.5f}")


if __name__ == "__main__":
    main()
