"""New tokens: the embedding matrix of a GPT-2 is replaced by a larger one after its parameters went to the optimizer.

Report: https://github.com/huggingface/transformers/pull/3532
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "no-optimizer", "framework": "transformers", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER",
    "parameters": ["transformer.wte.weight"],
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16))
decay = [p for n, p in model.named_parameters() if p.dim() > 1]
plain = [p for n, p in model.named_parameters() if p.dim() <= 1]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=1e-3)  # OPTIMIZER
table = torch.nn.Embedding(34, 16)
with torch.no_grad():
    table.weight[:30] = model.transformer.wte.weight
model.set_input_embeddings(table)
model.config.vocab_size = 34
model.tie_weights()
before = model.transformer.wte.weight.detach().clone()
for step in range(20):
    ids = torch.randint(0, 34, (4, 10))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    model.zero_grad()
print("reproduced", torch.equal(before, model.transformer.wte.weight))
