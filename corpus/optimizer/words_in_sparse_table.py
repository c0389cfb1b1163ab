"""A transformer on words has an embedding with sparse gradients from the second phase on, and AdamW cannot use them."""
import pydoc_data.topics

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {
    "kind": "optimizer-error", "line": ("cause", "STEPPED"), "parameters": ["transformer.wte.weight"],
    "framework": "transformers", "late": True, "set": "ledger", "written": "2026-11-29",
    "plain": "RuntimeError: Adam does not support sparse gradients, please consider SparseAdam instead",
}


def words():
    text = pydoc_data.topics.topics["typesmapping"].lower().split()
    known = sorted(set(text))
    return torch.tensor([known.index(one) for one in text]), len(known)


def train(model, optimizer, ids, steps):
    for at in torch.randint(len(ids) - 17, (steps, 4)):
        rows = ids[at[:, None] + torch.arange(17)]
        logits = model(rows[:, :-1]).logits
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).backward()
        optimizer.step()  # STEPPED


def main():
    torch.manual_seed(0)
    ids, size = words()
    config = GPT2Config(vocab_size=size, n_positions=32, n_embd=24, n_layer=1, n_head=2, tie_word_embeddings=False)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, optimizer, ids, 50)
    model.transformer.wte.sparse = True
    train(model, optimizer, ids, 50)


if __name__ == "__main__":
    main()
