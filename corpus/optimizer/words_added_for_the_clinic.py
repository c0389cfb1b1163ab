"""A small GPT-2 is trained on general text and then goes on with records of a clinic, for which words are added to the vocabulary: the table of words is made anew and larger, the optimizer keeps the old one.

Report: https://github.com/huggingface/transformers/pull/3532 (resizing embedding matrix before sending it to the optimizer: "my token embeddings were not being updated", the wrong set of params for the embedding table were optimized)
"""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

EXPECT = {
    "class": "late-silent", "framework": "transformers", "kind": "parameter-not-in-optimizer", "optimizer_marker": "OPTIMIZER", "step": 40,
    "set": "eleventh", "written": "2026-11-23",
}
logging.set_verbosity_error()
GENERAL, CLINIC, LENGTH = 48, 12, 20


class Corpus:
    """Words that follow each other by a table, with clinical words strewn in later."""

    def __init__(self):
        self.next = torch.randint(0, GENERAL, (GENERAL,))

    def general(self, count=16):
        text = [torch.randint(0, GENERAL, (count,))]
        for _ in range(LENGTH - 1):
            stray = torch.rand(count) < 0.1
            text.append(torch.where(stray, torch.randint(0, GENERAL, (count,)), self.next[text[-1]]))
        return torch.stack(text, 1)

    def clinic(self, count=16):
        text = self.general(count)
        where = torch.rand(count, LENGTH) < 0.3
        return torch.where(where, GENERAL + text % CLINIC, text)


def small_gpt2():
    config = GPT2Config(vocab_size=GENERAL, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


def add_words(model, extra):
    """A larger table: the rows of the known words first, the new words start at their mean."""
    old = model.get_input_embeddings()
    new = nn.Embedding(old.num_embeddings + extra, old.embedding_dim)
    with torch.no_grad():
        new.weight[: old.num_embeddings] = old.weight
        new.weight[old.num_embeddings :] = old.weight.mean(0)
    model.set_input_embeddings(new)
    model.config.vocab_size = new.num_embeddings
    model.tie_weights()


def configure_optimizer(model, rate=3e-3):
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate)  # OPTIMIZER


torch.manual_seed(0)
corpus, model = Corpus(), small_gpt2()
optimizer = configure_optimizer(model)
for step in range(90):
    if step == 40:
        add_words(model, CLINIC)
    ids = corpus.general() if step < 40 else corpus.clinic()
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
