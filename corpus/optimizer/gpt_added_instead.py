"""A small GPT-2 of transformers, trained by hand: add_ of the gradient with a positive alpha."""
import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "update-climbs", "framework": "transformers", "kind": "update-climbs", "line": ("stepped", "UP"),
    "set": "ledger", "written": "2026-11-27",
}

torch.manual_seed(0)
text = "the tide comes in, the tide goes out, and the boats go with it. " * 12
letters = sorted(set(text))
ids = torch.tensor([letters.index(c) for c in text])
config = GPT2Config(vocab_size=len(letters), n_positions=32, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
model = GPT2LMHeadModel(config)
for step in range(40):
    starts = torch.randint(0, len(ids) - 17, (8,))
    rows = torch.stack([ids[s : s + 17] for s in starts])
    logits = model(rows[:, :-1]).logits
    loss = F.cross_entropy(logits.reshape(-1, len(letters)), rows[:, 1:].reshape(-1))
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(weight.grad, alpha=0.03)  # UP
    if step % 10 == 0:
        print(step, loss.item())
