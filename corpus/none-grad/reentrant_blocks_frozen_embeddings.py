"""GPT-2 with low-rank adapters and gradient checkpointing of the old kind: the embeddings are frozen, so nothing that goes into the checkpointed blocks requires a gradient.

Report: https://github.com/huggingface/transformers/issues/25841 (Peft integration incompatible with gradient checkpointing; also huggingface/trl issue 2671)
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "cut", "framework": "transformers", "kind": "none-grad", "cut_marker": "CUT", "parameters": ["transformer.h.0.mlp.down.weight"],
    "set": "fourth", "written": "2026-11-22",
}


class Lora(nn.Module):
    def __init__(self, mlp, dim=16, rank=2):
        super().__init__()
        self.mlp, self.down, self.up = mlp, nn.Linear(dim, rank, bias=False), nn.Linear(rank, dim, bias=False)

    def forward(self, x):
        return self.mlp(x) + self.up(self.down(x))


torch.manual_seed(0)
config = GPT2Config(vocab_size=24, n_positions=32, n_embd=16, n_layer=2, n_head=2, use_cache=False, tie_word_embeddings=False)
model = GPT2LMHeadModel(config)
model.requires_grad_(False)
for block in model.transformer.h:
    block.mlp = Lora(block.mlp)
model.lm_head.requires_grad_(True)
model.train()


def run(ids):
    body = model.transformer
    h = body.wte(ids) + body.wpe(torch.arange(ids.shape[1]))
    for block in body.h:
        out = checkpoint(block, h, use_reentrant=True)  # CUT
        h = out[0] if isinstance(out, tuple) else out
    return model.lm_head(body.ln_f(h))


opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 2e-3)
for step in range(30):
    ids = (torch.randint(0, 24, (6, 1)) + torch.arange(12)) % 24
    loss = nn.functional.cross_entropy(run(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print("reproduced", model.transformer.h[0].mlp.down.weight.grad is None, loss.item())
