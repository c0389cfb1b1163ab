"""LoRA in a GPT-2 in the way of loralib: evaluation merges the adapters into the weights, nobody calls train() afterwards, and from then on only the norm learns.

Report: https://github.com/microsoft/LoRA/issues/61 (eval() merges, train() takes apart; also issue 34 there and Lightning-AI/lit-llama pull 185)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "stops-learning", "framework": "transformers", "kind": "none-grad", "step": 60,
    "parameters": ["transformer.h.0.attn.c_attn.lora_A", "transformer.h.0.attn.c_attn.lora_B"],
    "set": "fifth", "written": "2026-11-22",
}


class LoRAConv1D(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base, self.scaling, self.merged = base, alpha / r, False
        self.lora_A = nn.Parameter(0.02 * torch.randn(base.weight.shape[0], r))
        self.lora_B = nn.Parameter(torch.zeros(r, base.weight.shape[1]))

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            delta = (self.lora_A @ self.lora_B).detach() * self.scaling
            self.base.weight.data += -delta if mode else delta
            self.merged = not mode
        return self

    def forward(self, x):
        out = self.base(x)
        if not self.merged:
            out = out + x @ self.lora_A @ self.lora_B * self.scaling
        return out


def perplexity(model):
    model.eval()
    ids = torch.arange(12).repeat(2, 1)
    with torch.no_grad():
        return model(input_ids=ids, labels=ids).loss.exp().item()


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=24, n_positions=16, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
model.requires_grad_(False)
model.transformer.ln_f.requires_grad_(True)
for block in model.transformer.h:
    block.attn.c_attn = LoRAConv1D(block.attn.c_attn)
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for step in range(120):
    ids = (torch.randint(0, 24, (4, 1)) + torch.arange(12)) % 24
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 59:
        print("perplexity", perplexity(model))
    if step % 20 == 0:
        print(step, loss.item(), model.transformer.h[0].attn.c_attn.lora_A.grad is None)
