"""Healthy: a tiny Qwen2 whose loss is the sum over tokens, not their mean; norms of the gradient read above a thousand at first, all of it is clipped to one, and the model learns.

Report it resembles: https://github.com/alibaba/Pai-Megatron-Patch/issues/579 (grad-norm of 2500 in training although the loss decreases nicely; the loss is not divided by the length)
"""
import torch
from torch import nn
from torch.nn import functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

EXPECT = {"class": "healthy", "framework": "transformers", "kind": "none", "set": "ninth", "written": "2026-11-23"}
VOCAB, LENGTH = 40, 20


def sentences(n):
    """Words follow each other by a fixed rule with some slips; short ones are padded and not counted."""
    ids = torch.empty(n, LENGTH, dtype=torch.long)
    ids[:, 0] = torch.randint(1, VOCAB, (n,))
    for t in range(1, LENGTH):
        slip = torch.rand(n) < 0.05
        ids[:, t] = torch.where(slip, torch.randint(1, VOCAB, (n,)), (7 * ids[:, t - 1] + 3) % (VOCAB - 1) + 1)
    length = torch.randint(8, LENGTH + 1, (n,))
    mask = (torch.arange(LENGTH) < length[:, None]).long()
    return ids * mask, mask


def summed_loss(logits, ids, mask):
    target = ids[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum")


torch.manual_seed(0)
config = Qwen2Config(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=LENGTH, tie_word_embeddings=True, initializer_range=0.2, pad_token_id=0)
model = Qwen2ForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=120)
for step in range(120):
    ids, mask = sentences(64)
    loss = summed_loss(model(input_ids=ids, attention_mask=mask).logits, ids, mask)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step % 15 == 0:
        print(step, "per token", (loss / mask[:, 1:].sum()).item(), "norm before clipping", norm.item())
