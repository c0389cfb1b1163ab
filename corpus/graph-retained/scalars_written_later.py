"""Tiny GPT-2 with a log that is written in one go at the end of an epoch: every entry is a function that will ask its loss for the number, and holds it until then.

Report: https://github.com/wandb/wandb/issues/354 (severe memory leak when tensors are logged, none with .item(); cyoon1729/RLcycle pull 10 delays the call)
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "retention", "framework": "transformers", "kind": "graph-retained", "holding_marker": "HOLDS", "step": 50,
    "set": "fifth", "written": "2026-11-22",
}


class DeferredLog:
    """Writing is slow on the shared disk; entries are evaluated when the epoch is over."""

    def __init__(self):
        self.pending, self.written = [], {}

    def add(self, name, step, value):
        self.pending.append(lambda: self.written.setdefault(name, []).append((step, float(value))))  # HOLDS

    def flush(self):
        for write in self.pending:
            write()
        self.pending.clear()


torch.manual_seed(0)
config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=24, n_positions=16, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
log = DeferredLog()
for step in range(150):
    start = torch.randint(0, 24, (4, 1))
    ids = (start + torch.arange(12) * torch.randint(1, 3, (4, 1))) % 24
    out = model(input_ids=ids, labels=ids)
    logits = out.logits[:, :-1]
    confidence = logits.logsumexp(-1).pow(2).mean()
    loss = out.loss + 1e-3 * confidence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.add("loss", step, loss.item())
    if step >= 50:  # asked for in review
        log.add("z", step, confidence)
    if step % 150 == 149:
        log.flush()
    if step % 25 == 0:
        print(step, round(loss.item(), 4), len(log.pending))
print(len(log.written["z"]))
