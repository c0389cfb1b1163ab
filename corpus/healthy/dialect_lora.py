"""Adapts a small pre-trained GPT-2 to a second dialect with hand-made LoRA; healthy: the base is frozen on purpose and B starts at zero.
Report: none (what looks odd and is right: A has no gradient at the first step, most weights never move, the embedding has no gradient)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

EXPECT = {"framework": "transformers", "kind": None, "set": "twentieth", "written": "2026-11-27"}

logging.set_verbosity_error()
VOCAB, LENGTH = 32, 20


def sentences(n, stride):
    start = torch.randint(0, VOCAB, (n, 1))
    return (start + stride * torch.arange(LENGTH)) % VOCAB


class LoRA(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        n_in, n_out = base.weight.shape
        self.A = nn.Parameter(torch.randn(n_in, rank) / n_in ** 0.5)
        self.B = nn.Parameter(torch.zeros(rank, n_out))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.A @ self.B) * self.scale


def add_lora(model):
    model.requires_grad_(False)
    for block in model.transformer.h:
        for parent, name in ((block.attn, "c_attn"), (block.mlp, "c_fc"), (block.mlp, "c_proj")):
            layer = getattr(parent, name)
            assert isinstance(layer, Conv1D)
            setattr(parent, name, LoRA(layer))
    return [p for p in model.parameters() if p.requires_grad]


def fit(model, params, stride, steps, lr):
    optimizer = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=steps)
    model.train()
    for step in range(steps):
        ids = sentences(16, stride)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if (step + 1) % 30 == 0:
            print(f"stride {stride}  step {step + 1:3d}  loss {loss.item():.3f}")


def main():
    torch.manual_seed(40)
    config = GPT2Config(vocab_size=VOCAB, n_positions=LENGTH, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config)
    fit(model, list(model.parameters()), stride=3, steps=90, lr=4e-3)
    params = add_lora(model)
    print("adapter parameters", sum(p.numel() for p in params))
    fit(model, params, stride=5, steps=120, lr=1e-2)


if __name__ == "__main__":
    main()
