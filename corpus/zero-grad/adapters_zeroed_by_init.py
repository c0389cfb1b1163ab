"""Adapters in a GPT-2: the initialisation that runs after they were put in sets both of their matrices to zero, each one's gradient is a product with the other.

Report: https://github.com/Guitaricet/relora/issues/18 (also nvidia-cosmos/cosmos-predict2.5 pull 15)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "stops-learning", "framework": "transformers", "kind": "zero-grad", "cut_marker": "CUT",
    "set": "third", "written": "2026-11-22",
}


class LoraLinear(nn.Module):
    def __init__(self, base, width, rank=4, alpha=8):
        super().__init__()
        self.base, self.scaling = base, alpha / rank
        self.lora_a, self.lora_b = nn.Linear(width, rank, bias=False), nn.Linear(rank, 4 * width, bias=False)

    def forward(self, x):
        return self.base(x) + self.scaling * self.lora_b(self.lora_a(x))  # CUT


def init_weights(model):
    for name, p in model.named_parameters():
        if "lora_" in name:
            nn.init.zeros_(p)  # start from the pretrained model
        elif name.endswith("ln_f.weight"):
            nn.init.ones_(p)


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=30, n_positions=16))
model.requires_grad_(False)
for block in model.transformer.h:
    block.mlp.c_fc = LoraLinear(block.mlp.c_fc, 16)
model.transformer.ln_f.requires_grad_(True)
init_weights(model)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
for step in range(30):
    ids = torch.randint(0, 30, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
layer = model.transformer.h[0].mlp.c_fc
print("reproduced", layer.lora_a.weight.grad.any().item(), layer.lora_b.weight.grad.any().item())
