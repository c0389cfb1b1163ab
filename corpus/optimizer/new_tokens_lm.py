"""Trains a small GPT-2 from a config after adding control tokens; the token embeddings (and the tied output layer) never learn.

Report: https://github.com/huggingface/transformers/pull/3532 (the embedding matrix was resized after the parameters had been passed to the optimizer, so the wrong set of parameters for the embedding table was optimized)

Effect: the embedding matrix does not change at all and the loss stays clearly above that of a run in which the optimizer is made after the resizing.
"""
import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "framework": "transformers", "kind": "parameter-not-in-optimizer", "line": ("optimizer", "CAUSE"),
    "what": "The optimizer was made before the embedding table was replaced, so it still holds the old table and the new one (tied to the output layer) is never updated; build the optimizer after the resizing.",
    "set": "eighteenth", "written": "2026-11-27",
}

BASE, CONTROL, LENGTH = 40, 4, 16


def add_tokens(model, count):
    old = model.get_input_embeddings()
    new = nn.Embedding(old.num_embeddings + count, old.embedding_dim)
    with torch.no_grad():
        new.weight.normal_(0, 0.02)
        new.weight[:old.num_embeddings] = old.weight
    model.set_input_embeddings(new)  # OTHER
    model.config.vocab_size = new.num_embeddings
    model.lm_head = nn.Linear(old.embedding_dim, new.num_embeddings, bias=False)
    model.lm_head.weight = new.weight


def sample(n, gen):
    mode = torch.randint(0, CONTROL, (n, 1), generator=gen)
    start = torch.randint(0, BASE, (n, 1), generator=gen)
    body = (start + torch.arange(LENGTH - 1) * (2 * mode + 1)) % BASE
    return torch.cat([mode + BASE, body], 1)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    config = GPT2Config(vocab_size=BASE, n_positions=LENGTH, n_embd=48, n_layer=2, n_head=4,
                        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)  # CAUSE
    add_tokens(model, CONTROL)
    start = model.get_input_embeddings().weight.detach().clone()
    for step in range(160):
        ids = sample(32, gen)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 40 == 0:
            moved = (model.get_input_embeddings().weight - start).abs().max().item()
            print(f"step {step + 1} loss {loss.item():.3f} embeddings moved {moved:.5f}")


if __name__ == "__main__":
    main()
