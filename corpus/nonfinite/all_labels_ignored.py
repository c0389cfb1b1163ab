"""Instruction tuning of a GPT-2: truncation leaves a batch with prompt tokens only, every label is -100, the mean over nothing is NaN.

Report: https://github.com/huggingface/transformers/issues/11461 (NaN loss in fine-tuning; here through the ignored labels)
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "edge-of-domain", "framework": "transformers", "kind": "nonfinite-forward-poisons-backward", "source_marker": "CULPRIT",
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
bad = False
for step in range(25):
    ids = torch.randint(0, 30, (2, 10))
    prompt = 4 if step != 17 else 12
    labels = ids.masked_fill(torch.arange(10) < prompt, -100)
    loss = model(input_ids=ids, labels=labels).loss  # CULPRIT
    opt.zero_grad()
    loss.backward()
    opt.step()
    bad = bad or bool(loss.detach().isnan())
print("reproduced", bad)
