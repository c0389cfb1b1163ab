"""Pretrain a tiny GPT-2 on documentation text, then adapt it with hand-written LoRA (Trainer).

Right because: after the pretraining all base weights are frozen on purpose; LoRA's B starts
at zero, so A's gradient is exactly zero in the first step and nonzero from the second on;
only adapters have requires_grad, and Trainer hands only those to its optimizer.
Accumulation is 2, and the adapters are merged into the weights at the end.
"""
import math
import os
import tempfile
from pydoc_data import topics

import torch
import torch.nn as nn
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.pytorch_utils import Conv1D

EXPECT = {
    "class": "healthy", "kind": "none", "plain": {"outcome": "silent"},
    "set": "fifteenth", "written": "2026-11-26",
}

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
transformers.logging.set_verbosity_error()


class LoRA(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        n_in, n_out = base.weight.shape
        self.A = nn.Parameter(torch.randn(n_in, rank) / math.sqrt(n_in))
        self.B = nn.Parameter(torch.zeros(rank, n_out))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.A) @ self.B

    @torch.no_grad()
    def merged(self):
        self.base.weight += self.scale * self.A @ self.B
        return self.base


class Blocks(torch.utils.data.Dataset):
    def __init__(self, text, vocab, length=48):
        ids = torch.tensor([vocab.get(c, 0) for c in text])
        self.rows = ids[: len(ids) // length * length].view(-1, length)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i].clone()}


class Printer(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            print(f"  step {state.global_step} loss {float(logs['loss']):.3f}")


def train(net, data, steps, lr, accumulate=1):
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(out, max_steps=steps, per_device_train_batch_size=16, learning_rate=lr,
                                 gradient_accumulation_steps=accumulate, use_cpu=True, report_to=[],
                                 save_strategy="no", logging_steps=50, disable_tqdm=True, warmup_steps=10, seed=1)
        trainer = Trainer(net, args, train_dataset=data, callbacks=[Printer()])
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()


@torch.no_grad()
def held_out(net, data):
    net.eval()
    rows = data.rows[:128]
    return net(input_ids=rows, labels=rows).loss.item()


def main():
    torch.manual_seed(0)
    text = "".join(topics.topics[k] for k in sorted(topics.topics))[:120_000]
    vocab = {c: i + 1 for i, c in enumerate(sorted(set(text)))}
    base_data, shouted = Blocks(text[:90_000], vocab), Blocks(text[90_000:].upper(), vocab)
    cfg = GPT2Config(vocab_size=len(vocab) + 1, n_positions=48, n_embd=48, n_layer=2, n_head=2,
                     resid_pdrop=0.05, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    net = GPT2LMHeadModel(cfg)
    net.config.use_cache = False
    train(net, base_data, 250, 3e-3)
    print("before adaptation", held_out(net, shouted))
    net.requires_grad_(False)
    for block in net.transformer.h:
        for owner, name in ((block.attn, "c_attn"), (block.attn, "c_proj"), (block.mlp, "c_fc"), (block.mlp, "c_proj")):
            assert isinstance(getattr(owner, name), Conv1D)
            setattr(owner, name, LoRA(getattr(owner, name)))
    train(net, shouted, 150, 1e-2, accumulate=2)
    adapted = held_out(net, shouted)
    for block in net.transformer.h:
        for owner, name in ((block.attn, "c_attn"), (block.attn, "c_proj"), (block.mlp, "c_fc"), (block.mlp, "c_proj")):
            setattr(owner, name, getattr(owner, name).merged())
    print("after adaptation", adapted, "merged", held_out(net, shouted))


if __name__ == "__main__":
    main()
