"""Adapters written by hand on a frozen tiny Llama: zero-initialised up-projections, checkpointed layers, own SiLU backward.

Source: https://github.com/huggingface/peft/pull/2399 (adapters and tied weights) and
        https://github.com/pytorch/pytorch/issues/155171 (checkpointed decoder layers)
Plain PyTorch 2.13: in the first step every down-projection has an exactly zero gradient, then the loss falls.
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

EXPECT = {"class": "healthy", "kind": "none", "plain": {"outcome": "ok"}, "set": "thirteenth", "written": "2026-11-25"}


class SlimSiLU(torch.autograd.Function):
    """Keeps only the input and computes the sigmoid again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))


class Adapted(nn.Module):
    def __init__(self, base, rank=4, scale=2.0, dropout=0.1):
        super().__init__()
        self.base, self.scale, self.drop = base, scale, nn.Dropout(dropout)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        out = self.base(x)
        out += self.up(SlimSiLU.apply(self.down(self.drop(x)))).mul_(self.scale)
        return out


class CheckpointedLayer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, hidden, **rest):
        if self.training:
            return checkpoint(self.layer, hidden, use_reentrant=False, **rest)
        return self.layer(hidden, **rest)


def build():
    config = LlamaConfig(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True, use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.requires_grad_(False)
    for i, layer in enumerate(model.model.layers):
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
        layer.mlp.down_proj = Adapted(layer.mlp.down_proj)
        model.model.layers[i] = CheckpointedLayer(layer)
    model.model.norm.requires_grad_(True)
    return model


def sentences(generator, count=6):
    start = torch.randint(40, (count, 1), generator=generator)
    stride = torch.randint(1, 4, (count, 1), generator=generator)
    return (start + stride * torch.arange(14)) % 40


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = build().train()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0)
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 30)
    for step in range(240):
        for _ in range(2):
            tokens = sentences(generator)
            loss = model(input_ids=tokens, labels=tokens).loss
            (loss / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        warm.step()
        opt.zero_grad()
        if step % 40 == 0:
            model.eval()
            with torch.inference_mode():
                tokens = sentences(generator, 16)
                held = model(input_ids=tokens, labels=tokens).loss.item()
            model.train()
            print(step, f"{loss.item():.4f}", f"{held:.4f}", flush=True)


if __name__ == "__main__":
    main()
