"""Tiny Llama tuned on answers only, questions are not scored: the second stage has longer questions, a record is cut at the greatest length, and nothing of any answer is left to be scored.

Report: https://github.com/huggingface/trl/issues/6668 (a loss of 0.0 when every label in the batch is masked, because max_length cuts the sequence before a token of the completion)
"""
import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

EXPECT = {
    "class": "dies-late", "framework": "transformers", "kind": "zero-grad", "cut_marker": "CUT", "step": 50,
    "set": "tenth", "written": "2026-11-23",
}
VOCAB, SEP, PAD, LONGEST = 40, 1, 0, 32


def record(length):
    """Question, separator, answer: the first four tokens of the question in reverse."""
    question = torch.randint(2, VOCAB, (length,))
    return torch.cat([question, torch.tensor([SEP])]), question[:4].flip(0)


def collate(records):
    ids = torch.full((len(records), LONGEST), PAD)
    scored = torch.zeros(len(records), LONGEST)
    for row, (question, answer) in enumerate(records):
        text = torch.cat([question, answer])[:LONGEST]
        ids[row, : len(text)] = text
        scored[row, len(question) : len(text)] = 1
    return ids, (ids != PAD).long(), scored


class Tuner:
    def __init__(self, model, rate):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)

    def loss(self, ids, attention, scored):
        logits = self.model(input_ids=ids, attention_mask=attention).logits[:, :-1]
        nll = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        weight = scored[:, 1:]
        return (nll * weight).sum() / weight.sum().clamp(min=1)  # CUT

    def step(self, batch):
        loss = self.loss(*batch)
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item(), norm.item()


torch.manual_seed(0)
config = LlamaConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=PAD)
tuner = Tuner(LlamaForCausalLM(config), rate=3e-3)
for step in range(90):
    shortest, longest = (6, 20) if step < 50 else (34, 48)
    batch = collate([record(torch.randint(shortest, longest + 1, ()).item()) for _ in range(16)])
    loss, norm = tuner.step(batch)
    if step % 10 == 0:
        print(step, loss, norm)
