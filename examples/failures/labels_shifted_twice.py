"""A collator shifts the labels, and the model of transformers that gets them shifts them again."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {"kind": "targets-misaligned", "line": ("shifted", "SHIFT")}


def collate(rows):
    ids = torch.stack(rows)
    return {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}  # SHIFT


def main():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(20):
        start = torch.randint(0, 40, (8, 1))
        batch = collate(list((start + torch.arange(13)) % 40))
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
