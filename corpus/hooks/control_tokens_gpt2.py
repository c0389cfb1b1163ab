"""Adds a few control tokens to a small GPT-2 and wants to train only their embeddings.

Story: the model is trained on the Python help topics; then control tokens are added and a
gradient mask shall keep the rows of the old vocabulary as they are.  At the end the old rows
have moved as well.
Based on public reports: huggingface/transformers#29897 ("or all I can do is adding hooks to
zero the gradient for weights I do not want to change?") and kohjingyu/fromage#18 (the table is
another object with other flags after the vocabulary was extended).
"""
from pydoc_data import topics

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "class": "x", "kind": "hook-never-fires", "hook_marker": "HOOK", "plain": {"outcome": "silent"},
    "set": "fourteenth", "written": "2026-11-26",
}

VOCAB, NEW, SEQ, BATCH = 128, 4, 32, 12


class Corpus:
    """ASCII codes of the help topics; with tags, each line starts with a control token."""

    def __init__(self):
        text = "\n".join(topics.topics[k] for k in sorted(topics.topics))[:200_000]
        self.ids = torch.tensor(list(text.encode("ascii", "replace")))

    def batch(self, tagged=False):
        start = torch.randint(len(self.ids) - SEQ, (BATCH,))
        rows = torch.stack([self.ids[s:s + SEQ] for s in start.tolist()])
        if tagged:
            capitals = ((rows >= 65) & (rows <= 90)).sum(1).clamp(max=NEW - 1)
            rows = torch.cat([(VOCAB + capitals).unsqueeze(1), rows[:, 1:]], dim=1)
        return rows


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=SEQ, n_embd=48, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=False,
    )
    return GPT2LMHeadModel(config)


def protect_old_rows(model):
    """Zero the gradient of the rows that were there before."""
    weight = model.get_input_embeddings().weight

    def mask(grad):
        grad = grad.clone()
        grad[:VOCAB] = 0
        return grad

    return weight.register_hook(mask)  # HOOK


def widen_input_table(model):
    """Control tokens are only read, never predicted, so the output layer stays as it is."""
    old = model.get_input_embeddings()
    wide = nn.Embedding(VOCAB + NEW, old.embedding_dim)
    with torch.no_grad():
        wide.weight.mul_(0.02)
        wide.weight[:VOCAB].copy_(old.weight)
    model.set_input_embeddings(wide)


def train(model, params, corpus, steps, lr, tagged):
    optimizer = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    model.train()
    for step in range(steps):
        rows = corpus.batch(tagged)
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"{'tagged' if tagged else 'plain'} step {step} loss {loss.item():.3f}")


def main():
    torch.manual_seed(0)
    corpus, model = Corpus(), build_model()
    train(model, list(model.parameters()), corpus, steps=200, lr=2e-3, tagged=False)
    before = model.get_input_embeddings().weight.detach().clone()

    model.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(True)
    protect_old_rows(model)
    widen_input_table(model)
    table = model.get_input_embeddings().weight
    train(model, [table], corpus, steps=200, lr=5e-3, tagged=True)
    print("drift of the old rows", (table[:VOCAB] - before).abs().max().item())


if __name__ == "__main__":
    main()
