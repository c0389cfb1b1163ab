"""Long documents in two segments through a small Llama: once the segments are joined by a cache, it is the preallocated one that was made for generation, which is written in place.

Report: https://github.com/gpt-omni/mini-omni/issues/111 (index_copy_ of the key-value cache breaks backward in training; solved by not using the cache there)
"""
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

EXPECT = {
    "class": "late-inplace", "framework": "transformers", "kind": "inplace", "mutating_marker": "MUTATES", "step": 30,
    "set": "seventh", "written": "2026-11-22",
}


def make_cache(model, length):
    return StaticCache(config=model.config, max_cache_len=length)


def segment_loss(logits, ids):
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class LongTrainer:
    def __init__(self, model, segment=8):
        self.model, self.segment = model, segment
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def forward_segments(self, ids, joined):
        first, second = ids.split(self.segment, 1)
        cache = make_cache(self.model, ids.shape[1]) if joined else None
        out = self.model(input_ids=first, past_key_values=cache, use_cache=joined)
        loss = segment_loss(out.logits, first)
        out = self.model(input_ids=second, past_key_values=cache, use_cache=joined)  # MUTATES
        return (loss + segment_loss(out.logits, second)) / 2

    def step(self, ids, joined):
        loss = self.forward_segments(ids, joined)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=30, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32
)
trainer = LongTrainer(LlamaForCausalLM(config))
for step in range(60):
    start, stride = torch.randint(0, 30, (4, 1)), torch.randint(1, 3, (4, 1))
    ids = (start + stride * torch.arange(16)) % 30
    value = trainer.step(ids, joined=step >= 30)
    if step % 10 == 0:
        print(step, value)
