"""Language-model tuning in which the vocabulary gets some marker tokens part of the way through.

Source: https://github.com/huggingface/transformers/pull/3532 (same: https://github.com/huggingface/transformers/pull/3519)
Plain PyTorch 2.13: silent; the (tied) token table has gradients and does not move any more.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

EXPECT = {
    "class": "d", "kind": "parameter-not-in-optimizer", "parameters": ["transformer.wte.weight"],
    "optimizer_marker": "OPTIMIZER", "replaced_marker": "REPLACED", "step": 200, "plain": {"outcome": "silent"},
    "set": "thirteenth", "written": "2026-11-25",
}

WORDS = 60


def build():
    config = GPT2Config(
        vocab_size=WORDS, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )
    return GPT2LMHeadModel(config)


def groups(model):
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    return [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]


class Text:
    """Every word is followed by one of two successors; later, two marker tokens enclose the second half."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(9)
        self.successor = torch.randint(WORDS, (WORDS, 2), generator=self.generator)

    def batch(self, count=8, length=20, markers=False):
        rows = [torch.randint(WORDS, (count,), generator=self.generator)]
        for _ in range(length - 1):
            coin = torch.randint(2, (count,), generator=self.generator)
            rows.append(self.successor[rows[-1], coin])
        tokens = torch.stack(rows, 1)
        if markers:
            tokens[:, length // 2], tokens[:, -1] = WORDS, WORDS + 1
        return tokens


def add_markers(model, names):
    old = model.get_input_embeddings()
    new = torch.nn.Embedding(old.num_embeddings + len(names), old.embedding_dim)
    with torch.no_grad():
        new.weight.normal_(0, 0.02)
        new.weight[: old.num_embeddings] = old.weight
    model.set_input_embeddings(new)  # REPLACED
    model.tie_weights()
    model.config.vocab_size = new.num_embeddings


def main():
    logging.set_verbosity_error()
    torch.manual_seed(0)
    model, text = build(), Text()
    opt = torch.optim.AdamW(groups(model), lr=3e-3)  # OPTIMIZER
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    model.train()
    for step in range(420):
        if step == 200:
            add_markers(model, ["<think>", "</think>"])
        tokens = text.batch(markers=step >= 200)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        warm.step()
        model.zero_grad()
        if step % 40 == 0:
            print(step, f"{loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
