"""Healthy: adapters that start at zero in a checkpointed GPT-2 with dropout; in the first step half of them have a gradient of exact zeros.

Report it resembles: https://github.com/lucidrains/enformer-pytorch/issues/33
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "second", "written": "2026-11-22"}


class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(16, 2, bias=False), nn.Linear(2, 64, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=30, n_positions=16, use_cache=False))
model.requires_grad_(False)
for block in model.transformer.h:
    block.mlp.c_fc = Lora(block.mlp.c_fc)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
for step in range(25):
    ids = torch.randint(0, 30, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item())
