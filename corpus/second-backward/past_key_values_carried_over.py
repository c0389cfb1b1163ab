"""Segment-wise training of a GPT-2: keys and values of the segment before are passed on with their graph.

Report: https://github.com/NVlabs/LongLive/issues/16 (cache across training segments), error as in lucidrains/rotary-embedding-torch issue 18
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "second-backward", "framework": "transformers", "kind": "second-backward", "bridge_marker": "REUSED",
    "set": "first", "written": "2026-11-22",
}

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=32))
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for document in range(6):
    ids = torch.randint(0, 30, (2, 6 if document < 5 else 12))
    past = None
    for segment in ids.split(6, 1):
        out = model(input_ids=segment, labels=segment, past_key_values=past, use_cache=True)  # REUSED
        opt.zero_grad()
        out.loss.backward()
        opt.step()
        past = out.past_key_values
