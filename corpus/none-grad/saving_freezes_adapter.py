"""Adapter tuning of a GPT-2: writing a checkpoint loads the initial adapter beside the trained one, which freezes the latter; from then on nothing learns.

Report: https://github.com/modelscope/ms-swift/pull/9452 (caused by huggingface/peft, pull 3290 there)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "stops-learning", "framework": "peft", "kind": "none-grad", "cut_marker": "CUT",
    "parameters": ["transformer.h.0.mlp.c_fc.down.default.weight", "transformer.h.0.mlp.c_fc.up.default.weight"],
    "set": "second", "written": "2026-11-22",
}


class LoraLayer(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base, self.rank, self.active = base, rank, "default"
        self.down, self.up = nn.ModuleDict(), nn.ModuleDict()

    def add(self, name):
        self.down[name] = nn.Linear(16, self.rank, bias=False)
        self.up[name] = nn.Linear(self.rank, 64, bias=False)
        nn.init.zeros_(self.up[name].weight)

    def set_adapter(self, name, inference_mode=False):
        for key in self.down:
            train = key == name and not inference_mode
            self.down[key].requires_grad_(train)  # CUT
            self.up[key].requires_grad_(train)  # CUT
        self.active = name

    def forward(self, x):
        return self.base(x) + self.up[self.active](self.down[self.active](x))


def save_converted(model, initial):
    for layer in adapters(model):  # the initial weights are needed to write the difference
        layer.add(initial)
        layer.set_adapter("default", inference_mode=True)
    state = {n: p.detach().clone() for n, p in model.named_parameters() if ".down." in n or ".up." in n}
    for layer in adapters(model):
        del layer.down[initial], layer.up[initial]
    return state


def adapters(model):
    return [m for m in model.modules() if isinstance(m, LoraLayer)]


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16))
model.requires_grad_(False)
model.transformer.ln_f.requires_grad_(True)  # trained beside the adapter
for block in model.transformer.h:
    block.mlp.c_fc = LoraLayer(block.mlp.c_fc)
    block.mlp.c_fc.add("default")
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
for step in range(60):
    ids = torch.randint(0, 30, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == 29:
        checkpoint = save_converted(model, "initial")
print("reproduced", model.transformer.h[0].mlp.c_fc.up["default"].weight.grad is None)
