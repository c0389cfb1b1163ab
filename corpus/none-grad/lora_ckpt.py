"""LoRA fine-tuning of a frozen decoder with activation checkpointing; lora_A and lora_B never move.

Source: https://github.com/microsoft/LoRA/issues/120 (same: https://github.com/locuslab/open-unlearning/issues/178)
"""
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

EXPECT = {
    "class": "d", "kind": "none-grad", "cut_marker": "CUT",
    "parameters": ["layers.0.attn.q_proj.lora_A", "layers.2.attn.v_proj.lora_B"],
    "plain": {"outcome": "silent"},
    "set": "twelfth", "written": "2026-11-25",
}


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.t() @ self.lora_B.t()) * self.scaling


class Attention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.o_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p(x).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, d))


class DecoderLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln1, self.attn, self.ln2 = nn.LayerNorm(dim), Attention(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=50, dim=32, n_layers=3, gradient_checkpointing=True):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim) for _ in range(n_layers))
        self.norm, self.score = nn.LayerNorm(dim), nn.Linear(dim, 2)
        self.gradient_checkpointing = gradient_checkpointing

    def forward(self, ids):
        h = self.embed(ids)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                h = checkpoint(layer, h, use_reentrant=True)  # CUT
            else:
                h = layer(h)
        return self.score(self.norm(h)[:, -1])


def apply_lora(model, targets=("q_proj", "v_proj"), modules_to_save=("score",)):
    model.requires_grad_(False)
    for layer in model.layers:
        for name in targets:
            setattr(layer.attn, name, LoRALinear(getattr(layer.attn, name)))
    for name in modules_to_save:
        getattr(model, name).requires_grad_(True)
    return model


def main():
    torch.manual_seed(0)
    model = apply_lora(Decoder())
    params = [p for p in model.parameters() if p.requires_grad]
    print("trainable", sum(p.numel() for p in params), "of", sum(p.numel() for p in model.parameters()))
    opt = torch.optim.AdamW(params, lr=1e-3)
    for step in range(60):
        ids = torch.randint(0, 50, (16, 12))
        labels = (ids[:, 3] < ids[:, 8]).long()
        loss = F.cross_entropy(model(ids), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
