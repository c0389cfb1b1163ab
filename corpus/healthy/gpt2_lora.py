"""Hand-written LoRA on a GPT-2 built from a config: frozen base, bf16 autocast, gradient accumulation, adapter dropping.

Source: https://github.com/tientrandinh/Revisiting-Reverse-Distillation/issues/12 (accumulation, as it should be) and
https://github.com/huggingface/peft/issues/1142
"""
import copy
import random

import torch
from torch import nn
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {"kind": "none", "set": "twelfth", "written": "2026-11-25"}


class LoRA(nn.Module):
    def __init__(self, base, n_out, r=4):
        super().__init__()
        self.base = base
        n_in = base.weight.shape[0]
        self.A, self.B = nn.Parameter(torch.randn(n_in, r) / r), nn.Parameter(torch.zeros(r, n_out))
        self.active = True

    def forward(self, x):
        y = self.base(x)
        return y + x @ self.A @ self.B if self.active else y


def add_lora(model):
    model.requires_grad_(False)
    adapters = []
    for block in model.transformer.h:
        block.attn.c_attn = LoRA(block.attn.c_attn, 3 * model.config.n_embd)
        adapters.append(block.attn.c_attn)
    model.transformer.ln_f.requires_grad_(True)
    return adapters


def batch(n=8, length=12, vocab=40):
    start, stride = torch.randint(0, vocab, (n, 1)), torch.randint(1, 4, (n, 1))
    return (start + stride * torch.arange(length)) % vocab


def pretrain(model, steps=60):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        ids = (torch.randint(0, 40, (16, 1)) + torch.arange(12)) % 40
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(f"pretrained {loss.item():.3f}")


def main(accum=4, updates=60):
    random.seed(0)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=3, n_head=4, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    pretrain(model)
    teacher = copy.deepcopy(model).eval().requires_grad_(False)
    adapters = add_lora(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)
    for update in range(updates):
        dropped = random.choice(adapters) if update % 5 == 4 else None
        for adapter in adapters:
            adapter.active = adapter is not dropped
        total = 0.0
        for _ in range(accum):
            ids = batch()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(input_ids=ids, labels=ids)
                with torch.no_grad():
                    ref = teacher(input_ids=ids).logits
            kl = F.kl_div(out.logits.float().log_softmax(-1), ref.float().softmax(-1), reduction="batchmean")
            loss = (out.loss + 1e-4 * kl) / accum
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(trainable, 1.0)
        opt.step()
        opt.zero_grad()
        if update % 10 == 0:
            print(f"update {update} loss {total:.3f}")


if __name__ == "__main__":
    main()
