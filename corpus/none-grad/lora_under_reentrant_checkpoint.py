"""LoRA in a GPT-2 with reentrant gradient checkpointing and frozen embeddings: no input of a block needs a gradient, the adapters get none.

Report: https://github.com/locuslab/open-unlearning/issues/178
"""
import warnings
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "cut", "framework": "transformers", "kind": "none-grad", "cut_marker": "CUT",
    "parameters": ["transformer.h.0.mlp.c_fc.down.weight", "transformer.h.0.mlp.c_fc.up.weight"],
    "set": "first", "written": "2026-11-22",
}
warnings.simplefilter("ignore")


class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(16, 2, bias=False), nn.Linear(2, 64, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=30, n_positions=16, tie_word_embeddings=False))
model.requires_grad_(False)
for block in model.transformer.h:
    block.mlp.c_fc = Lora(block.mlp.c_fc)
model.lm_head.requires_grad_(True)
for block in model.transformer.h:
    block.forward = lambda h, *a, inner=block.forward, **k: checkpoint(partial(inner, **k), h, *a, use_reentrant=True)  # CUT
model.train()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
for step in range(8):
    ids = torch.randint(0, 30, (2, 8))
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.transformer.h[0].mlp.c_fc.up.weight.grad is None)
