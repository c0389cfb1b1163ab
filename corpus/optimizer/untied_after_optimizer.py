"""The output layer of a GPT-2 is untied for a new vocabulary head in mid-run: the clone is known to no optimizer.

Report: https://github.com/huggingface/transformers/issues/35141 (lm_head replaced behind the user's back)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "no-optimizer", "framework": "transformers", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["lm_head.weight"],
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)  # OPTIMIZER
sched = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 10)
for step in range(40):
    if step == 24:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
        before = model.lm_head.weight.detach().clone()
    ids = torch.randint(0, 30, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
print("reproduced", torch.equal(before, model.lm_head.weight))
