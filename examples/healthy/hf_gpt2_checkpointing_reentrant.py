"""Healthy: tiny GPT-2 from config with dropout, both kinds of gradient checkpointing, accumulation."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

EXPECT = {"kind": None}


def train(reentrant):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=60, n_embd=24, n_layer=2, n_head=2, n_positions=32)
    model = GPT2LMHeadModel(config)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(6):
        ids = torch.randint(0, 60, (2, 10))
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss / 2
        loss.backward()
        if step % 2:
            opt.step()
            opt.zero_grad()
    return loss.item()


if __name__ == "__main__":
    print(train(False), train(True))
