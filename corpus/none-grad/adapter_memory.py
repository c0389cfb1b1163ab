"""Hand-written low-rank adapters in a frozen GPT-2 that sorts short token strings into classes; only the head learns.

Report: https://github.com/huggingface/transformers/issues/26221 (with reentrant gradient checkpointing and frozen
embeddings no input of a checkpointed block requires grad, so the adapters get no gradient; warning "None of the
inputs have requires_grad=True").
Effect: every adapter's grad is None and lora_b is still exactly zero at the end; accuracy stays lower than with
use_reentrant=False.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2Model

EXPECT = {
    "framework": "transformers", "kind": "none-grad", "line": ("cut", "CAUSE"),
    "what": "reentrant gradient checkpointing with frozen embeddings: no checkpointed block has an input that requires grad, so the adapters get no gradient at all; use use_reentrant=False or make the embedding output require grad",
    "set": "twentyfirst", "written": "2026-11-27",
}


class LowRank(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        n_in, n_out = base.weight.shape
        self.lora_a = nn.Parameter(torch.randn(n_in, rank) * 0.05)
        self.lora_b = nn.Parameter(torch.zeros(rank, n_out))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.lora_a @ self.lora_b) * self.scale


class Classifier(nn.Module):
    def __init__(self, n_class):
        super().__init__()
        cfg = GPT2Config(vocab_size=30, n_positions=16, n_embd=48, n_layer=2, n_head=4, use_cache=False, bos_token_id=0, eos_token_id=0,
                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.body = GPT2Model(cfg)
        for p in self.body.parameters():
            p.requires_grad = False
        for block in self.body.h:
            block.attn.c_attn = LowRank(block.attn.c_attn)
            block.mlp.c_fc = LowRank(block.mlp.c_fc)
        self.head = nn.Linear(48, n_class)

    def forward(self, ids):
        h = self.body.wte(ids) + self.body.wpe(torch.arange(ids.shape[1]))
        for block in self.body.h:
            h = checkpoint(self.run_block, block, h, use_reentrant=True)  # CAUSE
        return self.head(self.body.ln_f(h)[:, -1])

    @staticmethod
    def run_block(block, h):
        out = block(h)
        return out[0] if isinstance(out, tuple) else out


def make_batch(n, gen):
    ids = torch.randint(0, 30, (n, 12), generator=gen)
    return ids, ids[:, 3] % 5


torch.manual_seed(3)
gen = torch.Generator().manual_seed(4)
model = Classifier(5)
model.train()
trainable = [p for p in model.parameters() if p.requires_grad]
print("trainable parameters", sum(p.numel() for p in trainable))
optimizer = torch.optim.AdamW(trainable, lr=5e-3, weight_decay=0.0)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=250)

for step in range(250):
    ids, y = make_batch(48, gen)
    loss = F.cross_entropy(model(ids), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 50 == 0:
        print(f"step {step:3d}  loss {loss.item():.3f}  lr {scheduler.get_last_lr()[0]:.4f}")

model.eval()
with torch.no_grad():
    ids, y = make_batch(1000, gen)
    print("accuracy", (model(ids).argmax(-1) == y).float().mean().item())
print("largest lora_b", max(p.abs().max().item() for n, p in model.named_parameters() if n.endswith("lora_b")))
