"""Healthy: transformers LlamaForCausalLM from a tiny config, frozen base, LoRA on q_proj/v_proj, gradient checkpointing."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

EXPECT = {"kind": None}


class LoRA(nn.Module):
    def __init__(self, base, r=2):
        super().__init__()
        self.base = base
        self.A, self.B = (
            nn.Parameter(torch.randn(r, base.in_features) / r),
            nn.Parameter(torch.zeros(base.out_features, r)),
        )

    def forward(self, x):
        return self.base(x) + x @ self.A.t() @ self.B.t()


def main():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config).requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.self_attn.v_proj = LoRA(layer.self_attn.q_proj), LoRA(layer.self_attn.v_proj)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(5):
        ids = torch.randint(0, 64, (2, 12))
        loss = model(input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids), use_cache=False).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
    print(loss.item())


if __name__ == "__main__":
    main()
